"""Spark Connect: the driver runs on a server, which is called by gRPC.

This package is imported only if a server is configured.
"""
