"""Partitioned tables, as sources and users ask for them and as engines read them."""
