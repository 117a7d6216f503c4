"""The IAM policy of a configuration, and the Lake Formation grants beside it: what the connector needs, no more."""
