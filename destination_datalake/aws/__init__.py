"""Reaching AWS: access as a value that travels, failures in words, uploads."""
