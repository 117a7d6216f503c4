"""The Airbyte protocol: parsing of messages and the catalog, and output of states and logs.

Imports neither AWS clients nor Spark.
"""
