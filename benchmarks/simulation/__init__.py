"""Simulate syncs that are too large for one machine, with costs measured on this machine."""
