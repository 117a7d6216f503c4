"""Measure the cost of maintaining a table."""
