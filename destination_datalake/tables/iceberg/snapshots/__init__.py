"""Reads the live files of Iceberg tables, makes manifest entries, and adds snapshots that change files."""
