"""What a commit costs when a table has had many."""
