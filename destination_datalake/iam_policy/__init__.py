"""The minimal IAM policy for a configuration, and its minimal Lake Formation grants."""
