"""One `write`, from its first line to its last."""
