"""Partitioning: the assignment of rows to partitions, and the folders of partitions. Pure functions without I/O."""
