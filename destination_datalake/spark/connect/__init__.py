"""Spark Connect: the driver runs on a server, which is called by gRPC. Imported only if such a server is configured."""
