"""Reads the live files of Iceberg tables, creates manifest entries, and adds snapshots that add or remove files."""
