"""Tables in the Glue Data Catalog, and the commits of each kind. Does not import `spark`."""
