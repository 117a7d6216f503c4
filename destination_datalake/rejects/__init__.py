"""Rejects, the dead letters of a sync: what could not be kept as it was sent, written where it can be found again."""
