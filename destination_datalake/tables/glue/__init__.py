"""The Glue Data Catalog: its databases, and its tables, which are changed by compare-and-set."""
