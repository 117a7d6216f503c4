"""The data files of one unit: which rows come into which file, and when a file ends."""
