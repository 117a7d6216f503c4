"""The minimal IAM policy and the minimal Lake Formation grants of a configuration."""
