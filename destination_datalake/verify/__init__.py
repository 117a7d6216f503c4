"""The `verify` command: read all rows of tables, and check the result against the tables' metadata."""
