"""Upserts into a large table: the connector, DuckDB, PyIceberg, and Spark with the Iceberg runtime."""
