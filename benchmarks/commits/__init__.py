"""Measure the cost of a commit to a table that has had many commits."""
