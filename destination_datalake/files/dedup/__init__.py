"""Deduplication on executors: find the latest row of each key, and remove the other rows from files."""
