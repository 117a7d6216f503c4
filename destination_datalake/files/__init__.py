"""Arrow columns to data files on S3, and the rewriting of such files. Runs on executors; knows no catalog."""
