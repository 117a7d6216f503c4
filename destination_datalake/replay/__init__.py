"""The command `replay`: a table is made again from its archive, by living through its syncs once more."""
