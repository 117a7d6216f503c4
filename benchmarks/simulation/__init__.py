"""Simulate syncs that are too large for one machine, with costs that were measured on it."""
