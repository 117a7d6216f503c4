"""From JSON lines to Arrow columns. Knows schemas and the protocol; no Spark, no AWS, no tables."""
