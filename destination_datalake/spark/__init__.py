"""Run jobs on Spark: functions of `files` on tasks. The only room that imports PySpark."""
