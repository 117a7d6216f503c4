"""Steps about the catalog, Glue's or a REST catalog: the database, and the life of a table in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from destination_datalake.aws.access import catalog_id
from destination_datalake.check.step import LEFTOVER_AGE, Findings, Trial
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
_OURS = re.compile(rf"{_NAME}[0-9a-f]{{32}}")
_DESCRIPTION = "Created by a connection check of destination-datalake; safe to delete."
_DROPPED_AT_ONCE = 10


def is_of_a_check(table: str) -> bool:
    """Whether a table's name is one that checks give."""
    return _OURS.fullmatch(table) is not None


def try_database(trial: Trial, findings: Findings) -> None:
    """Create the database unless it exists."""
    with findings.attempt("create or read database", trial.database):
        ensure_database(trial.access.client("glue"), trial.database, Policy.of(trial.config).database_settings)


def try_table(trial: Trial, findings: Findings) -> None:
    """Create, read, change and drop a table, where a stream's would be. Leaves nothing behind."""
    glue, database = trial.access.client("glue"), trial.database
    entry = _entry(trial, trial.unique)
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
            if registers_partitions(trial.config):
                _try_partitions(trial, findings, glue, table)
            else:
                _try_partition(trial, glue, table)
    finally:
        # A table may exist although the answer to its creation was lost.
        with (findings if create.succeeded else Findings()).attempt("drop table", name):
            glue.delete_table(DatabaseName=database, Name=table)


@contextmanager
def another_table(trial: Trial) -> Iterator[str]:
    """Lend a table in the database for something else to be tried on. Raises what Glue raises when it is created."""
    glue, database = trial.access.client("glue"), trial.database
    entry = _entry(trial, trial.unique[::-1])
    try:
        glue.create_table(DatabaseName=database, TableInput=entry)
        yield entry["Name"]
    finally:
        # Whether tables can be dropped is another step's subject.
        with Findings().attempt("drop table", entry["Name"]):
            glue.delete_table(DatabaseName=database, Name=entry["Name"])


def _entry(trial: Trial, unique: str) -> TableInputTypeDef:
    table = f"{_NAME}{unique}"
    location = f"{trial.config.table_uri(trial.database, table)}/"
    return {
        "Name": table,
        "Description": _DESCRIPTION,
        "TableType": "EXTERNAL_TABLE",
        "StorageDescriptor": {"Columns": [{"Name": "id", "Type": "string"}], "Location": location},
        "PartitionKeys": [{"Name": "dt", "Type": "string"}],
    }


def _try_partitions(trial: Trial, findings: Findings, glue: GlueClient, table: str) -> None:
    """Create, read, change and delete a partition, as syncs do whose tables are partitioned."""
    database, partition = trial.database, _partition(trial, table)
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


def _partition(trial: Trial, table: str) -> PartitionInputTypeDef:
    location = f"{trial.config.table_uri(trial.database, table)}/dt=2000-01-01/"
    return {"Values": ["2000-01-01"], "StorageDescriptor": {"Location": location}}


def _try_partition(trial: Trial, glue: GlueClient, table: str) -> None:
    """Log why no partition can be created: without it, rejects are in S3 and not in their table."""
    optional, partition = Findings(), _partition(trial, table)
    with optional.attempt("create a partition of", f"table {trial.database}.{table}"):
        glue.batch_create_partition(DatabaseName=trial.database, TableName=table, PartitionInputList=[partition])
    for failure in optional.failures:
        _logger.warning("%s Only the table of rejects depends on it.", failure.message)


def try_rest_catalog(trial: Trial, findings: Findings) -> None:
    """Create the namespace unless it exists; create, change and drop a table in it. Leaves no table behind."""
    from destination_datalake.tables.iceberg.inspection import TrialTable  # PyIceberg takes a second to import.

    catalog, database = catalog_of(trial.config, trial.access), trial.database
    name = TableName(database, f"{_NAME}{trial.unique}")
    with findings.attempt("create or read namespace", database) as ensured:
        catalog.ensure(database)
    if not ensured.succeeded:
        return
    table = TrialTable(name, catalog)
    try:
        with findings.attempt("create table", str(name)) as created:
            assigned = trial.config.catalog.limits.assigns_locations
            table.create(None if assigned else trial.config.table_uri(*name))
        if created.succeeded:
            with findings.attempt("change table", str(name)):
                table.change()
    finally:
        # A table may exist although the answer to its creation was lost.
        with (findings if created.succeeded else Findings()).attempt("drop table", str(name)):
            table.drop()


def try_optimizers(trial: Trial, findings: Findings) -> None:
    """Ask for optimizers of a table that does not exist, and create one: AWS refuses who may not before it looks."""
    options = trial.config.maintenance
    if not isinstance(options, GlueOptimizers):
        return
    glue, database = trial.access.client("glue"), trial.database
    table = f"{_NAME}{trial.unique}_optimized"
    nothing_there = (
        glue.exceptions.EntityNotFoundException,
        glue.exceptions.InvalidInputException,
        glue.exceptions.ValidationException,
    )
    with findings.attempt("turn on the table optimizers of database", database):
        catalog = catalog_id(trial.access)
        with suppress(*nothing_there):
            glue.batch_get_table_optimizer(
                Entries=[{"catalogId": catalog, "databaseName": database, "tableName": table, "type": "compaction"}]
            )
        with suppress(*nothing_there):
            glue.create_table_optimizer(
                CatalogId=catalog,
                DatabaseName=database,
                TableName=table,
                Type="compaction",
                TableOptimizerConfiguration=configuration_of("compaction", options, {}),
            )


def drop_leftovers(glue: GlueClient, listed: Iterable[ListedTable]) -> None:
    """Drop the tables that killed checks have left days ago. What cannot be dropped stays."""
    latest = datetime.now(UTC) - LEFTOVER_AGE
    old = [
        (database, table["Name"])
        for database, table in listed
        if is_of_a_check(table["Name"])
        and table.get("Description") == _DESCRIPTION
        and "CreateTime" in table
        and table["CreateTime"] < latest
    ]
    for database, name in old[:_DROPPED_AT_ONCE]:
        with Findings().attempt("drop table", f"{database}.{name}"):
            glue.delete_table(DatabaseName=database, Name=name)
            _logger.info("Dropped table %s.%s, which an interrupted check has left.", database, name)
