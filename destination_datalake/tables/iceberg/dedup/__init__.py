"""Merges pending rows in Iceberg tables: the deduplication key, the files to merge, the Spark jobs, and the commit."""
