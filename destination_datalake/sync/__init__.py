"""One `write`, from the first line of stdin to the exit code."""
