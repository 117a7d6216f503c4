"""The Glue Data Catalog: databases, and entries changed by compare-and-set."""
