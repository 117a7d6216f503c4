"""Spark with a driver of our own: in this process's JVM, whose executors are local or on a cluster."""
