"""Manifests: the entries of data files, and the snapshots that add and replace them."""
