"""Column types, column names, and schema evolution. All functions are pure and perform no I/O."""
