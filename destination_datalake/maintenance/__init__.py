"""Maintenance of Iceberg tables by the connector or Glue: compaction, snapshot expiry, and removal of orphan files."""
