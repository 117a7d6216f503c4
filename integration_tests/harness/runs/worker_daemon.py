"""The connector's worker daemon for the test session's Spark, whose workers serve runs with several credentials."""

import runpy

from destination_datalake.spark.classic.pyspark_internals import hide_pandas
from integration_tests.harness.runs.service_models import share

if __name__ == "__main__":
    with hide_pandas():
        share()
    runpy.run_module("destination_datalake.spark.classic.worker_daemon", run_name="__main__")
