"""What every run of the connector imports sooner or later, imported once by the process that runs are forked from."""

from importlib import import_module

MODULES = (
    "airbyte_cdk.exception_handler",
    "awswrangler",
    "boto3",
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

for module in MODULES:
    import_module(module)
