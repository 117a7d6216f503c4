"""The `replay` command: re-run the archived syncs of a table, to rebuild the table."""
