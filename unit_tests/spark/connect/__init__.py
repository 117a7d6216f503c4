"""Spark Connect: jobs as rows, sessions, failures."""
