"""Options that belong together, a module for each object or group of them in the spec."""
