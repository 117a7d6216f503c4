"""What is removed from a table: expired snapshots, their files, and orphans. Nothing that a reader can still reach."""
