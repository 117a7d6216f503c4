"""The Glue Data Catalog: databases, tables, and commits by compare-and-set."""
