"""Rejects: records and values that the destination table cannot store as sent, written to S3 with a reason each."""
