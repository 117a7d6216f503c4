"""What the operations work on: requests, resources as values, and the state of an account."""
