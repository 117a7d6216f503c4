"""Column types, column names, and schema evolution. Only pure functions, without I/O."""
