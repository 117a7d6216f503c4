"""Spark Connect costs nothing where it is not used."""

from __future__ import annotations

import subprocess
import sys

LOCAL = """
import sys
import destination_datalake.check.connection
import destination_datalake.cli
import destination_datalake.destination
import destination_datalake.spark.classic.backend
import destination_datalake.sync.conductor
import destination_datalake.write
from destination_datalake.spark.engine import start_engine
from pyspark import SparkConf, SparkContext
print(sorted({"grpc", "google.protobuf", "pyspark.sql.connect.client",
    "destination_datalake.spark.connect"} & set(sys.modules)))
"""


def test_neither_commands_nor_a_local_spark_import_grpc_or_spark_connect() -> None:
    done = subprocess.run([sys.executable, "-c", LOCAL], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"
