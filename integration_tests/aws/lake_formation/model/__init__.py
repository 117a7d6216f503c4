"""What Lake Formation knows: resources as values, and the state of an account."""
