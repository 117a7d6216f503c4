"""Hive tables: Parquet or JSON-lines files in the S3 folder that is the table's location."""
