"""Access to AWS: clients and credentials, user-facing messages about errors, and operations on S3 objects."""
