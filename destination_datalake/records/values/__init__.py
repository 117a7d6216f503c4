"""The careful rules for reading values, a module per family of types."""
