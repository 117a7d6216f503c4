"""Maintenance of Iceberg tables: rules, and the commits that follow from them."""
