"""Rejects, the dead letters of a sync: records and values that cannot be stored as sent, with the reason."""
