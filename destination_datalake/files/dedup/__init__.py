"""Deduplication on executors: which rows of files are the latest of their key, and files without the others."""
