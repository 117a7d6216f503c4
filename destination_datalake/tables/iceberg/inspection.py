"""Checks before a sync: whether the connector can write to the Iceberg tables, and may change tables in the catalog."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType, NestedField

from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.iceberg.commit import TableOperations, set_property
from destination_datalake.tables.iceberg.compatibility import (
    UNREADABLE,
    incompatibility,
    is_of_s3_data_lake,
    required_field_within,
    s3_data_lake_notes,
)
from destination_datalake.tables.iceberg.dedup.plan import why_unmergeable
from destination_datalake.tables.iceberg.file_io import S3FileIO
from destination_datalake.tables.iceberg.schema import column_types
from destination_datalake.tables.reconcile import foreign_metadata_column
from destination_datalake.tables.s3_data_lake import EPOCH_METADATA_COLUMNS
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.catalog import ListedTable, TableCatalog

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of inspecting a table.

    `problem` is the reason why the connector can write no stream to the table, or None. `notes` contains remarks for
    the user. Both are clauses about the table.
    """

    table: TableName
    problem: str | None
    notes: tuple[str, ...] = ()


def inspect_tables(tables: Sequence[ListedTable], access: AwsAccess) -> Iterator[Inspection]:
    """Yield the inspections of the tables that have a problem or notes.

    If the metadata of a table cannot be read, log the error and skip the table.
    """
    io = S3FileIO(access.client("s3"))
    for database, glue_table in tables:
        name = TableName(database, glue_table["Name"])
        try:
            # The listing contains the location, so reading the metadata needs no further request to the catalog.
            location = glue_table.get("Parameters", {}).get("metadata_location", "")
            metadata = FromInputFile.table_metadata(io.new_input(location))
            notes = tuple(_notes(name, metadata, io))
        except ValidationError:
            yield Inspection(name, UNREADABLE)
            continue
        except Exception as error:  # The sync that writes to the table reports the error.
            _logger.info(
                "Cannot read the metadata of table %s (%s). The check of this table was skipped.",
                name,
                type(error).__name__,
            )
            continue
        if (problem := _problem(metadata)) is not None or notes:
            yield Inspection(name, problem, notes)


def _problem(metadata: TableMetadata) -> str | None:
    if (problem := incompatibility(metadata) or why_unmergeable(metadata)) is not None:
        return problem
    columns = EPOCH_METADATA_COLUMNS if is_of_s3_data_lake(metadata) else METADATA_COLUMNS
    return foreign_metadata_column(column_types(metadata), columns)


def _notes(name: TableName, metadata: TableMetadata, io: S3FileIO) -> Iterator[str]:
    schema = metadata.schema()
    if (column := required_field_within(schema, schema.column_names)) is not None:
        yield (
            f"its column {column} is required, so the connector refuses streams with a field "
            f"{column.partition('.')[0]}. Make the column optional (ALTER TABLE ... ALTER COLUMN {column} DROP NOT "
            "NULL)"
        )
    if is_of_s3_data_lake(metadata):
        yield from s3_data_lake_notes(name, metadata, io)


class TrialTable:
    """A temporary table that the connector creates, changes and drops to test its permissions in a catalog.

    All methods raise ConnectorError if the catalog rejects the operation.
    """

    def __init__(self, name: TableName, catalog: TableCatalog) -> None:
        self._name = name
        self._catalog = catalog

    def create(self, location: str | None) -> None:
        """Create the table at the S3 URI `location`. If `location` is None, the catalog assigns a location."""
        self._catalog.pyiceberg().create_table(self._name, Schema(NestedField(1, "id", LongType())), location)

    def change(self) -> None:
        """Commit a change to one table property."""
        operations = TableOperations(self._name, self._catalog)
        operations.commit(lambda _table, transaction: set_property("airbyte.check", "1", transaction))

    def drop(self) -> None:
        """Drop the table and delete its files. Do nothing if the table does not exist."""
        with suppress(NoSuchTableError):
            self._catalog.pyiceberg().purge_table(self._name)
