"""Run jobs on Spark: functions of `files`, applied to tasks. Only this package imports PySpark."""
