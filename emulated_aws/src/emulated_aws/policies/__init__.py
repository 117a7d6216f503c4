"""Policy documents: patterns, conditions, decisions. Pure."""
