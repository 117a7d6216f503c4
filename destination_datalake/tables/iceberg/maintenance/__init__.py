"""Maintains Iceberg tables: compaction, expiry of snapshots, removal of orphans."""
