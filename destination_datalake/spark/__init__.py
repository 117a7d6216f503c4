"""Encoding on Spark: segments in, data files out. `encode` and what it imports run on the executors."""
