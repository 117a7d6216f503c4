"""A cluster on one machine: hosts that do not see the driver's files, Spark's own daemons, executors' Pythons."""
