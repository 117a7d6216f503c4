"""Hive and Iceberg tables: create, commit, verify and rebuild them. Also the catalogs that contain the tables.

This package does not import `spark`.
"""
