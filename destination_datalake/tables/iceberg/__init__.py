"""Iceberg tables, through PyIceberg."""
