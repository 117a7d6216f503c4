"""Versions of rows on executors: read from pending files, and reduced to the latest of each key."""
