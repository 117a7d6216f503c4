"""Iceberg tables, read and written with PyIceberg."""
