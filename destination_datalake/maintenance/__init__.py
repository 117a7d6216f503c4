"""Maintenance of Iceberg tables by the connector or by Glue: compaction, expiry of snapshots, and orphan removal."""
