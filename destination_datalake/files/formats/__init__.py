"""Formats of data files: what the bytes of one file are."""
