"""Jobs that run on Spark executors: write records as data files in S3, search data files, and rewrite data files.

The jobs read and write S3 directly, and do not access a catalog.
"""
