"""Spark Connect: the driver is on a server that is reached by gRPC. Imported only if it is configured."""
