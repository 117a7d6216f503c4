"""Deduplication on executors: find the latest row of each key, and remove all other rows from files."""
