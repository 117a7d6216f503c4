"""Access to AWS: clients and sessions, user-facing error messages, and reads and writes of objects in S3."""
