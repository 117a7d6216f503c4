"""Assign rows to partitions, and name the folders of partitions. This package performs no I/O."""
