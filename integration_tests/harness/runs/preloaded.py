"""Import modules that every run of the connector needs, once, in the process from which runs are forked."""

import gc
from importlib import import_module

from integration_tests.harness.runs.service_models import share

MODULES = (
    "awswrangler",
    "destination_datalake.check.connection",
    "destination_datalake.cli",
    "destination_datalake.files.encode",
    "destination_datalake.sync.conductor",
    "destination_datalake.tables.hive.table",
    "destination_datalake.tables.iceberg.table",
    "integration_tests.harness.runs.warm",
    "pyspark.accumulators",
    "pyspark.java_gateway",
)


def load() -> None:
    """Import the modules, and load botocore's models of the services."""
    for module in MODULES:
        import_module(module)
    share()
    gc.collect()
    # Freeze the garbage collector's objects, so that forked runs share their memory pages.
    gc.freeze()


load()
