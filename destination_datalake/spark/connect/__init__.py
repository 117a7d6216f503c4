"""Spark Connect: Spark's driver runs on a server, which the connector calls by gRPC.

The connector imports this package only if the configuration names a server.
"""
