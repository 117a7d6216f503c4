"""Hive tables: Parquet or JSON-lines files in the folder that is the table's location."""
