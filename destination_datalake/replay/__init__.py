"""The command `replay`: rebuild a table by re-running its archived syncs."""
