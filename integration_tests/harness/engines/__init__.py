"""Engines that read partitioned tables, each as it finds partitions, and what each has to read for a query."""
