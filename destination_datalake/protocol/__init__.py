"""The Airbyte protocol: parsing of messages and the catalog, and output of states and logs.

This package imports neither AWS clients nor Spark.
"""
