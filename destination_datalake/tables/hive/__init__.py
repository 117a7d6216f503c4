"""Hive tables: Parquet or JSON Lines files in the S3 folder that is the table's location."""
