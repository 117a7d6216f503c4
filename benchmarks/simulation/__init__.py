"""A model of syncs that are too large for one machine, fed with costs measured on it."""
