"""Column types, names and schema evolution. Pure functions, no I/O."""
