"""The data that the operations use: requests, resources, and the state of an account."""
