"""Partitions of Hive tables: what a table is partitioned by, and its registered partitions, an index of its content."""
