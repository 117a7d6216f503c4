"""Metadata files and the Glue table that points to them: reading, and committing by compare-and-set."""
