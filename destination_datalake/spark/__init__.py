"""Run jobs on Spark: each applies a function from the package `files` to tasks. Only this package imports PySpark."""
