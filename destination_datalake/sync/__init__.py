"""One sync: the `write` command from the first line of stdin to the exit code."""
