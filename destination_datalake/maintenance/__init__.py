"""Maintenance of Iceberg tables, by the connector or by Glue: compaction, expiry, and orphan removal."""
