"""Stress: syncs that are killed, frozen, overtaken and lied to at random, and an oracle that says what must be left."""
