"""The engine: Spark runs functions of `files` over tasks on its executors. The only room that imports pyspark."""
