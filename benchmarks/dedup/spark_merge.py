"""Run MERGE in Spark with the Iceberg runtime. This script needs its own environment, with another PySpark.

The arguments are SQL statements. Prints the seconds and CPU seconds of the last statement, without Spark's start. AWS's
environment variables contain the keys. The variable ENDPOINT contains the URL of the emulated AWS.
"""

import json
import os
import sys
import time
from pathlib import Path

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
)


def main(statements: list[str]) -> None:
    """Run the statements on all cores, and print the cost of the last one."""
    from pyspark.sql import SparkSession

    endpoint = os.environ["ENDPOINT"]
    settings = {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "6g",
        "spark.sql.catalog.glue": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.glue.type": "glue",
        "spark.sql.catalog.glue.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "spark.sql.catalog.glue.glue.endpoint": endpoint,
        "spark.sql.catalog.glue.s3.endpoint": endpoint,
        "spark.sql.catalog.glue.s3.path-style-access": "true",
        "spark.sql.catalog.glue.client.region": os.environ["AWS_REGION"],
    }
    builder = SparkSession.builder.master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    *before, last = statements
    for statement in before:
        session.sql(statement).collect()
    started, cpu = time.perf_counter(), _cpu_seconds()
    session.sql(last).collect()
    print(json.dumps({"seconds": time.perf_counter() - started, "cpu_seconds": _cpu_seconds() - cpu}))


def _cpu_seconds() -> float:
    """Return the CPU time of the JVM, which is the child of this process, in seconds."""
    ticks = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text()
            except OSError:
                continue
            name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            if name == "java" and int(fields[1]) == os.getpid():
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(sys.argv[1:])
