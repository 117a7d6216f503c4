"""Conversion of RECORD lines to Arrow columns.

This package depends on schemas and the protocol, but not on Spark, AWS or tables.
"""
