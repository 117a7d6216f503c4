"""Rejects: records and values that the table cannot store as the source sent them. Syncs write them to S3."""
