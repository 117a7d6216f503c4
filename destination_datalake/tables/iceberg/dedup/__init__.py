"""Merges pending rows in Iceberg tables: the key, the files that take part, the jobs, and the commit."""
