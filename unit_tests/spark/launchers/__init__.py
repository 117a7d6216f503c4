"""Sessions of AWS services with Spark Connect."""
