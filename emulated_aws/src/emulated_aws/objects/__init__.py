"""What is in S3 and KMS, as far as permissions depend on it: policies of resources, keys, uploads."""
