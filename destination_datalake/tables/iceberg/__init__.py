"""Iceberg tables, which the connector reads and writes with PyIceberg."""
