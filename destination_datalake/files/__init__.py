"""Jobs on executors: write Arrow columns as data files in S3, search them, rewrite them. No catalog."""
