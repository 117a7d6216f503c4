"""AWS: clients from a serialisable value, user-facing errors, uploads, backoff."""
