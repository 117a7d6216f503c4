"""Maintenance of Iceberg tables: compaction, expiry of snapshots, and removal of orphans."""
