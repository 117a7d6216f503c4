"""Spark Connect: a Spark whose driver is elsewhere, reached by gRPC. Imported only if the options name one."""
