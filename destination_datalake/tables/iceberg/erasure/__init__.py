"""Erasure of rows from Iceberg tables: from all branches, snapshots and manifests, and files that nothing refers to."""
