"""Partition specs and sort orders of Iceberg tables."""
