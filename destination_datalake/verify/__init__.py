"""The `verify` command: scan tables in full, and check the result against their metadata."""
