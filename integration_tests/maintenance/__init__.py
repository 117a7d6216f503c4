"""Maintenance of tables, as users of the command line see it."""
