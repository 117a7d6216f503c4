"""Erases rows from Iceberg tables: from all branches, snapshots and manifests, and from unreferenced files."""
