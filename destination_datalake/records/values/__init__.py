"""The careful rules for the conversion of values. Each family of types has a module."""
