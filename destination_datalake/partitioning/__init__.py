"""Partitioning: assigns rows to partitions, and names the folders of partitions. Performs no I/O."""
