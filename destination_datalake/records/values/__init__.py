"""The rules for reading values, a module per family of types: Arrow's type, the vectorised and the careful rule."""
