"""Iceberg tables in a catalog that implements Iceberg's REST protocol."""
