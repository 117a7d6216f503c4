"""The table types, their commits, and the catalogs that contain the tables. This package does not import `spark`."""
