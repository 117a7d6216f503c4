"""The stages of one sync, which is one run of the `write` command from the first line of stdin to the exit code."""
