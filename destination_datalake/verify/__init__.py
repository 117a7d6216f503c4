"""The command `verify`: full scan of tables, checked against their metadata."""
