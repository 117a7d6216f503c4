"""The minimal IAM policy and the minimal Lake Formation grants that a configuration requires."""
