"""Sealed segments where executors read them: on this machine's disk, or in S3."""
