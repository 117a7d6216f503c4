"""Check steps for the Glue or REST catalog. The steps create a missing database, and use a temporary table."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from destination_datalake.aws.access import catalog_id
from destination_datalake.check.step import LEFTOVER_AGE, CheckContext, StepFindings
from destination_datalake.config.tables import GlueOptimizers
from destination_datalake.iam_policy.conditions import registers_partitions
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.maintenance.after_sync import configuration_of
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.glue.catalog import ensure_database
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import (
        BatchUpdatePartitionRequestEntryTypeDef,
        PartitionInputTypeDef,
        TableInputTypeDef,
    )

    from destination_datalake.tables.catalog import ListedTable

_logger = logging.getLogger(__name__)

_NAME = "airbyte_check_"
_CHECK_TABLE = re.compile(rf"{_NAME}[0-9a-f]{{32}}")
_DESCRIPTION = "Created by a connection check of destination-datalake; safe to delete."
_MAX_DROPPED = 10


def is_check_table(table: str) -> bool:
    """Return whether `table` has the form of the names that checks give to temporary tables."""
    return _CHECK_TABLE.fullmatch(table) is not None


def try_database(context: CheckContext, findings: StepFindings) -> None:
    """Create the Glue database if it does not exist, and add a failure if the caller may not create or read it."""
    with findings.attempt("create or read database", context.database):
        ensure_database(
            context.access.client("glue"), context.database, Policy.from_config(context.config).database_settings
        )


def try_table(context: CheckContext, findings: StepFindings) -> None:
    """Create, read, change and drop a temporary Glue table, and add a failure for each denied request.

    Also creates a partition. If syncs register partitions in Glue, also reads, lists, changes and deletes the
    partition.
    """
    glue, database = context.access.client("glue"), context.database
    entry = _entry(context, context.unique)
    table = entry["Name"]
    name = f"{database}.{table}"
    with findings.attempt("create table", name) as create:
        glue.create_table(DatabaseName=database, TableInput=entry)
    try:
        if create.succeeded:
            with findings.attempt("read table", name):
                glue.get_table(DatabaseName=database, Name=table)
            with findings.attempt("change table", name):
                glue.update_table(DatabaseName=database, TableInput=entry)
            if registers_partitions(context.config):
                _try_partitions(context, findings, glue, table)
            else:
                _try_partition(context, glue, table)
    finally:
        # The table may exist even if its creation failed, because the response may have been lost.
        with (findings if create.succeeded else StepFindings()).attempt("drop table", name):
            glue.delete_table(DatabaseName=database, Name=table)


@contextmanager
def temporary_table(context: CheckContext) -> Iterator[str]:
    """Create a temporary table in Glue, yield its name, and drop the table at the end of the `with` block.

    Raises botocore's errors if the table cannot be created. Ignores an error from dropping the table.
    """
    glue, database = context.access.client("glue"), context.database
    # Reversed, so that the name differs from that of `try_table`, whose table may still exist if Glue did not drop it.
    entry = _entry(context, context.unique[::-1])
    try:
        glue.create_table(DatabaseName=database, TableInput=entry)
        yield entry["Name"]
    finally:
        # Do not report a failure here, because `try_table` checks the permission to drop tables.
        with StepFindings().attempt("drop table", entry["Name"]):
            glue.delete_table(DatabaseName=database, Name=entry["Name"])


def _entry(context: CheckContext, unique: str) -> TableInputTypeDef:
    table = f"{_NAME}{unique}"
    location = f"{context.config.table_uri(context.database, table)}/"
    return {
        "Name": table,
        "Description": _DESCRIPTION,
        "TableType": "EXTERNAL_TABLE",
        "StorageDescriptor": {"Columns": [{"Name": "id", "Type": "string"}], "Location": location},
        "PartitionKeys": [{"Name": "dt", "Type": "string"}],
    }


def _try_partitions(context: CheckContext, findings: StepFindings, glue: GlueClient, table: str) -> None:
    """Create, read, list, change and delete a partition of `table`, as syncs do for partitioned Hive tables.

    Adds a failure for each denied request.
    """
    database, partition = context.database, _partition(context, table)
    name, values = f"table {database}.{table}", partition["Values"]
    with findings.attempt("create a partition of", name):
        glue.batch_create_partition(DatabaseName=database, TableName=table, PartitionInputList=[partition])
    with findings.attempt("read a partition of", name):
        glue.batch_get_partition(DatabaseName=database, TableName=table, PartitionsToGet=[{"Values": values}])
    with findings.attempt("list the partitions of", name):
        glue.get_partitions(DatabaseName=database, TableName=table, ExcludeColumnSchema=True)
    with findings.attempt("change a partition of", name):
        entry: BatchUpdatePartitionRequestEntryTypeDef = {"PartitionValueList": values, "PartitionInput": partition}
        glue.batch_update_partition(DatabaseName=database, TableName=table, Entries=[entry])
    with findings.attempt("delete a partition of", name):
        glue.batch_delete_partition(DatabaseName=database, TableName=table, PartitionsToDelete=[{"Values": values}])


def _partition(context: CheckContext, table: str) -> PartitionInputTypeDef:
    location = f"{context.config.table_uri(context.database, table)}/dt=2000-01-01/"
    return {"Values": ["2000-01-01"], "StorageDescriptor": {"Location": location}}


def _try_partition(context: CheckContext, glue: GlueClient, table: str) -> None:
    """Create a partition of `table`, as syncs do for the table of rejects.

    Logs a failure as a warning. Syncs without this permission still store rejects in S3, but cannot register the
    partitions of the rejects.
    """
    optional, partition = StepFindings(), _partition(context, table)
    with optional.attempt("create a partition of", f"table {context.database}.{table}"):
        glue.batch_create_partition(DatabaseName=context.database, TableName=table, PartitionInputList=[partition])
    for failure in optional.failures:
        _logger.warning(
            "%s Without this permission, syncs cannot register partitions of the rejects table.", failure.message
        )


def try_rest_catalog(context: CheckContext, findings: StepFindings) -> None:
    """Create the namespace if it does not exist. Create, change and drop a temporary table in the namespace.

    Adds a failure for each denied request. If the namespace can be neither created nor read, creates no table.
    """
    from destination_datalake.tables.iceberg.inspection import TrialTable  # PyIceberg takes a second to import.

    catalog, database = catalog_of(context.config, context.access), context.database
    name = TableName(database, f"{_NAME}{context.unique}")
    with findings.attempt("create or read namespace", database) as ensured:
        catalog.ensure(database)
    if not ensured.succeeded:
        return
    table = TrialTable(name, catalog)
    try:
        with findings.attempt("create table", str(name)) as created:
            assigned = context.config.catalog.limits.assigns_locations
            table.create(None if assigned else context.config.table_uri(*name))
        if created.succeeded:
            with findings.attempt("change table", str(name)):
                table.change()
    finally:
        # The table may exist even if its creation failed, because the response may have been lost.
        with (findings if created.succeeded else StepFindings()).attempt("drop table", str(name)):
            table.drop()


def try_optimizers(context: CheckContext, findings: StepFindings) -> None:
    """Check the permissions to read and turn on Glue's table optimizers.

    The requests name a table that does not exist, so they change nothing. AWS checks permissions before it looks for
    the table. If AWS answers that the table does not exist, the caller therefore has the permission.
    """
    options = context.config.maintenance
    assert isinstance(options, GlueOptimizers)
    glue, database = context.access.client("glue"), context.database
    table = f"{_NAME}{context.unique}_optimized"
    not_found_errors = (
        glue.exceptions.EntityNotFoundException,
        glue.exceptions.InvalidInputException,
        glue.exceptions.ValidationException,
    )
    with findings.attempt("turn on the table optimizers of database", database):
        catalog = catalog_id(context.access)
        with suppress(*not_found_errors):
            glue.batch_get_table_optimizer(
                Entries=[{"catalogId": catalog, "databaseName": database, "tableName": table, "type": "compaction"}]
            )
        with suppress(*not_found_errors):
            glue.create_table_optimizer(
                CatalogId=catalog,
                DatabaseName=database,
                TableName=table,
                Type="compaction",
                TableOptimizerConfiguration=configuration_of("compaction", options, {}),
            )


def drop_leftovers(glue: GlueClient, listed: Iterable[ListedTable]) -> None:
    """Drop up to 10 temporary tables of checks that are older than LEFTOVER_AGE. Ignore errors from dropping them."""
    latest = datetime.now(UTC) - LEFTOVER_AGE
    old = [
        (database, table["Name"])
        for database, table in listed
        if is_check_table(table["Name"])
        and table.get("Description") == _DESCRIPTION
        and "CreateTime" in table
        and table["CreateTime"] < latest
    ]
    for database, name in old[:_MAX_DROPPED]:
        with StepFindings().attempt("drop table", f"{database}.{name}"):
            glue.delete_table(DatabaseName=database, Name=name)
            _logger.info("Dropped table %s.%s, which an interrupted check had left behind.", database, name)
