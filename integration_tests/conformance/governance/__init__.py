"""Syncs in an account that Lake Formation governs."""
