"""Jobs that run on executors: write Arrow columns as data files in S3, search files, rewrite files.

No catalog is used.
"""
