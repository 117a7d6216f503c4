"""Partitions as other engines see them: Spark with the Iceberg runtime, in the versions that fit each other.

Run by `make test-engines` alone: it downloads that Spark and the runtime's jars.
"""
