"""What the maintenance of a table costs."""
