"""Stress: syncs that are killed, refused, cut off and overtaken at random, and an oracle of what must be left."""
