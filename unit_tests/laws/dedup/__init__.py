"""The law of deduplicated tables: a table has the rows that a dict in Python has."""
