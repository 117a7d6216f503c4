"""Jobs that run on executors: write records as data files in S3, search data files, and rewrite data files.

The jobs do not use a catalog.
"""
