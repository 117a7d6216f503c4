"""Merges of Iceberg tables: the key by which rows are merged, the files that take part, the jobs, and the commit."""
