"""Iceberg tables. The connector reads and writes them with PyIceberg."""
