"""The table as Spark's Parquet reader finds it in the live files."""

import tempfile
from typing import TYPE_CHECKING

from integration_tests.chaos.attempts.source import STREAM, Sending
from integration_tests.harness.lake import Lake

if TYPE_CHECKING:
    from pyspark import SparkContext


def sendings_by_spark(context: "SparkContext", lake: Lake) -> list[Sending]:
    """Return what is in the table, of which no rows are deleted by delete files."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        # Not in the folders of partitions, which are columns to Spark.
        for number, key in enumerate(lake.data_files(lake.database, STREAM)):
            lake.s3.download_file(lake.bucket, key, f"{folder}/{number}.parquet")
        frame = SparkSession(context).read.schema("position INT, attempt INT").parquet(folder)
        return sorted(Sending(row["position"], row["attempt"]) for row in frame.collect())
