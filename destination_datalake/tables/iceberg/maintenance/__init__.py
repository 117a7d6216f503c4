"""Maintains Iceberg tables: compacts files, expires snapshots, and removes orphan files."""
