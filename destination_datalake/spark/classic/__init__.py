"""Classic Spark: this process starts the driver JVM. Executors are local or on a cluster."""
