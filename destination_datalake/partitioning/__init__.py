"""Partitions: how rows are assigned to them, and how the values of a partition appear in paths. Pure."""
