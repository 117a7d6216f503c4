"""Databases and tables of the Glue Data Catalog. All changes of tables are made by compare-and-set."""
