"""The printed policies against the requests of real syncs."""
