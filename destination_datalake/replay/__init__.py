"""The `replay` command: rebuild a table from its archive by re-running the archived syncs."""
