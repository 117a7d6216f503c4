"""Hive tables: files in a folder that the catalog's entry names."""
