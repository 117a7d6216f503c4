"""Tables of each type and their commits, and the catalogs that contain them. Does not import `spark`."""
