"""Erases rows from Iceberg tables: from branches, snapshots and manifests, and from unreferenced files."""
