"""Deduplication on executors: find the latest row of each key, and remove all other rows of the key from files."""
