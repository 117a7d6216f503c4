"""Iceberg tables in catalogs that implement Iceberg's REST protocol."""
