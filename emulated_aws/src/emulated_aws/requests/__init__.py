"""Requests: their operations, the permissions that they need, and the log of all requests."""
