"""Determines the minimal IAM policy and Lake Formation grants that a configuration requires."""
