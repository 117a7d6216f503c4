"""Policy documents: patterns, conditions and decisions. This package performs no I/O."""
