"""What a stream looks like as a table: types, names, evolution. Pure functions, no I/O."""
