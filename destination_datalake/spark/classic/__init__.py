"""Classic Spark: this process starts the driver JVM; executors are local or on a cluster."""
