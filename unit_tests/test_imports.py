"""What a command does not use, it does not import."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.share(3)

LOCAL = """
import destination_datalake.check.connection
import destination_datalake.cli
import destination_datalake.destination
import destination_datalake.spark.classic.backend
import destination_datalake.sync.conductor
import destination_datalake.write
from destination_datalake.spark.engine import start_engine
from pyspark import SparkConf, SparkContext
"""
WRITE = """
import destination_datalake.cli
import destination_datalake.sync.conductor
import destination_datalake.tables.hive.table
import destination_datalake.tables.iceberg.table
import destination_datalake.write
"""
WITHOUT_SPARK = """
import destination_datalake.check.connection
import destination_datalake.iam_policy.command
"""
HELP = """
import destination_datalake.cli
"""
CONNECT = {"grpc", "google.protobuf", "pyspark.sql.connect.client", "destination_datalake.spark.connect.session"}
ENGINES = {"pyspark", "py4j", "pyiceberg", "pyarrow", "pandas", "awswrangler"}
CDK = {"airbyte_cdk"}
CONFIG = {"boto3", "pydantic"} | CDK


@pytest.mark.parametrize(
    ("imports", "unused"),
    [(LOCAL, CONNECT), (WRITE, CDK), (WITHOUT_SPARK, CONNECT | ENGINES), (HELP, CONNECT | ENGINES | CONFIG)],
    ids=["a sync with a local Spark", "write", "check and iam-policy", "help and spec"],
)
def test_what_a_command_does_not_use_is_not_imported(imports: str, unused: set[str]) -> None:
    program = f"import sys{imports}print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert unused.intersection(done.stdout.split()) == set()
