"""What executors on other machines need."""
