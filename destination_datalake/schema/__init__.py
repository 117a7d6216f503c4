"""Column types, names and schema evolution. Pure functions without I/O."""
