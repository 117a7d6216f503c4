"""What every run of the connector loads sooner or later, loaded once by the process that runs are forked from."""

import gc
from importlib import import_module
from typing import Literal

import boto3
import botocore.session
from botocore.loaders import create_loader

MODULES = (
    "airbyte_cdk.exception_handler",
    "awswrangler",
    "destination_datalake.destination",
    "destination_datalake.cli",
    "destination_datalake.files.encode",
    "destination_datalake.sync.conductor",
    "destination_datalake.tables.hive.table",
    "destination_datalake.tables.iceberg.table",
    "integration_tests.harness.runs.warm",
    "pyspark.accumulators",
    "pyspark.java_gateway",
)
SERVICES: tuple[Literal["glue", "s3", "sts"], ...] = ("glue", "s3", "sts")


def load() -> None:
    """Import the modules, and read botocore's descriptions of services, which all sessions then share."""
    for module in MODULES:
        import_module(module)
    loader = create_loader()
    botocore.session.create_loader = lambda search_path_string=None: loader  # noqa: ARG005
    session = boto3.Session(region_name="us-east-1", aws_access_key_id="-", aws_secret_access_key="-")
    for service in SERVICES:
        session.client(service)
    gc.collect()
    # Runs share these pages until they write to them, as a garbage collection would.
    gc.freeze()


load()
