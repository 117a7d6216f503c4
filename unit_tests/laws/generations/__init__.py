"""The law of generations: whatever two connections do to one table, what they acknowledged is there or they say so."""
