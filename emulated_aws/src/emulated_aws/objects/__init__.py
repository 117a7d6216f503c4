"""The state of S3 and KMS on which permissions depend: the policies of resources, KMS keys and uploads."""
