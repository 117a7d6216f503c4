"""Run jobs on Spark. A job applies a function of the package `files` to tasks. Only this package imports PySpark."""
