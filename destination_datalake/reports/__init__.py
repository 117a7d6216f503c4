"""Reports of syncs. Each sync writes a report to S3, from which the history and the health of tables are determined."""
