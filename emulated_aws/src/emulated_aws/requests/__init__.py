"""Requests: which operation they are, which permissions that needs, and the log of them."""
