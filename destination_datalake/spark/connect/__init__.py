"""Spark Connect: the driver is on a server, reached by gRPC. Imported only if it is configured."""
