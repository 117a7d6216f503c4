"""Histories: rounds in one process, of streams with all kinds of fields, in tables of all layouts."""
