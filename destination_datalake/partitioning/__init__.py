"""Partitions: the assignment of rows, and the paths of partition values. Pure functions."""
