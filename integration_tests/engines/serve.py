"""Runs SQL in Spark with Iceberg: a script for an environment of its own, with one JSON object per line in and out.

A request is {"sql": …}; the answer {"rows": […], "files": …} or {"error": …}. Values are in Iceberg's own terms where
JSON has no type: dates are days and timestamps microseconds since 1970; decimals are texts, and bytes hexadecimal.
"""

import datetime as dt
import decimal
import json
import os
import sys
from typing import Any

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
)


def main(warehouse: str, endpoint: str, region: str) -> None:
    """Serve until the input ends. `warehouse` is a folder; `endpoint` is that of AWS, with keys in the environment."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Spark prints is no answer
    from pyspark.sql import SparkSession

    catalogs = {
        "local": {"type": "hadoop", "warehouse": warehouse},
        "glue": {
            "type": "glue",
            "cache-enabled": "false",  # others write to the tables as well
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "glue.endpoint": endpoint,
            "s3.endpoint": endpoint,
            "s3.path-style-access": "true",
            "client.region": region,
        },
    }
    builder = SparkSession.builder.master("local[1]")
    settings = {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.adaptive.enabled": "false",  # it has the metrics of a plan elsewhere
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for catalog, options in catalogs.items():
        settings[f"spark.sql.catalog.{catalog}"] = "org.apache.iceberg.spark.SparkCatalog"
        settings |= {f"spark.sql.catalog.{catalog}.{name}": value for name, value in options.items()}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"rows": []}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            frame = session.sql(json.loads(line)["sql"])
            answer = {"rows": [row.asDict(recursive=True) for row in frame.collect()], "files": files_of(frame)}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer, default=in_iceberg_terms), file=answers, flush=True)


def files_of(frame: Any) -> int:
    """Return how many data files the query has read."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    metrics = [leaves.apply(number).metrics().get("resultDataFiles") for number in range(leaves.size())]
    return sum(metric.get().value() for metric in metrics if metric.isDefined())


def in_iceberg_terms(value: object) -> object:
    """Return what JSON can have of a value."""
    match value:
        case dt.datetime():  # in UTC, which is the time zone of the process
            return (value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(
                microseconds=1
            )
        case dt.date():
            return (value - dt.date(1970, 1, 1)).days
        case decimal.Decimal():
            return f"{value:f}"
        case bytes() | bytearray():
            return value.hex()
    raise TypeError(type(value).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
