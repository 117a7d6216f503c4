"""What every run of the connector loads sooner or later, loaded once by the process that runs are forked from."""

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
    """Import the modules, and read what botocore needs of each service."""
    for module in MODULES:
        import_module(module)
    share()
    gc.collect()
    # Runs share these pages until they write to them, as a garbage collection would.
    gc.freeze()


load()
