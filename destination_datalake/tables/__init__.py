"""Create, write, verify and rebuild Hive and Iceberg tables, and access the catalogs that contain the tables.

This package does not import the package `spark`.
"""
