"""Convert RECORD lines to Arrow columns.

This package depends on the packages `schema` and `protocol`, but not on Spark, AWS or tables.
"""
