"""Rejects: records and values that cannot be stored as sent. They are stored as dead letters, each with a reason."""
