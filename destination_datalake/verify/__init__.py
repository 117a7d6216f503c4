"""The command `verify`: reads all rows of tables, and checks them against the tables' metadata."""
