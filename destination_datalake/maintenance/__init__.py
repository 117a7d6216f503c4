"""Maintenance of Iceberg tables: compaction, expiry of snapshots, removal of orphans; by Glue or by the connector."""
