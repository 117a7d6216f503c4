"""What a locked-down account asks of a sync: encryption, its own catalog, renewed credentials, secrets kept."""
