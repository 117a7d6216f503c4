"""From Arrow columns to data files on S3. Runs on executors; knows nothing of tables and their catalogs."""
