"""Decode JSON lines to Arrow columns. Depends on schemas and the protocol; no Spark, no AWS, no tables."""
