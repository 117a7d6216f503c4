"""Measure upserts into a large table with the connector, DuckDB, PyIceberg, and Spark with Iceberg's runtime."""
