"""The command `verify`, which reads all rows of tables and compares them with the tables' metadata."""
