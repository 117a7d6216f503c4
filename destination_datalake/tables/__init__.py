"""Tables of the Glue Data Catalog, and what "commit" means for each kind. Knows nothing of Spark's running."""
