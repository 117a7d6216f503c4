"""Rejects: records and values that cannot be stored as sent, which are stored as dead letters with the reason."""
