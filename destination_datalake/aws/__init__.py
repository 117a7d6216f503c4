"""AWS: clients from a serialisable value, errors explained for the user, uploads, backoff."""
