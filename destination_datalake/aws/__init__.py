"""Access to AWS: clients and credentials, user-facing error messages, and S3 objects."""
