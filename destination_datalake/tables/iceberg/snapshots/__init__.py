"""Live files and manifest entries of Iceberg tables, and the snapshots that add and replace files."""
