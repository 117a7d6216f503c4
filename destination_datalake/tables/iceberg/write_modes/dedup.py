"""Append with deduplication: rows are committed to a branch, and merged into the table's content from there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.iceberg.branches import PENDING_BRANCH, keep_for_ever
from destination_datalake.tables.iceberg.dedup.definition import (
    PENDING_BY,
    UNIQUE_BY,
    Definition,
    MergeScope,
    pending_scope,
    way_out,
)
from destination_datalake.tables.iceberg.metadata.operations import TableOperations
from destination_datalake.tables.iceberg.write_modes.mode import WriteMode
from destination_datalake.tables.table import TableConflict, TableName, table_conflict


class AppendDedup(WriteMode):
    """Writes to the branch of rows that are not deduplicated yet. Any number of syncs may do so at the same time."""

    def __init__(self, table: TableName, stream: Stream, definition: Definition) -> None:
        super().__init__(table, stream, PENDING_BRANCH)
        self._definition = definition

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Adopt the rows of pending overwrites; remove their branches and the fencing token of their writer.

        Raises TableConflict as `require`, and if rows are pending that do not have the key: in all of them it is null.
        """
        self.require(table.metadata)
        pending = pending_scope(table.metadata)
        if pending is not None and not self._definition.has_columns(_schema_of_pending(table.metadata)):
            raise self._conflict(pending.definition, "its pending rows came with", table.metadata)
        if pending is not None:
            # Nothing was merged by another key (`require`), and another cursor decides about them as about new rows.
            self._definition.write_to(PENDING_BY, transaction)
        self._take_over(table, transaction)

    def require(self, metadata: TableMetadata) -> None:
        """Raise TableConflict if the content is unique by another key."""
        unique = Definition.of(UNIQUE_BY, metadata)
        if unique is not None and unique.key != self._definition.key:
            raise self._conflict(unique, "its rows are unique by", metadata)

    def _conflict(self, by: Definition, fact: str, metadata: TableMetadata) -> TableConflict:
        schema = metadata.schema()
        # A field whose type has changed may have a new column, under whose id the key is another one.
        where = "" if self._definition.has_columns(schema) else ", in a new column"
        problem = (
            f"{fact} the primary key ({by.key_names(schema)}), and that of the stream is "
            f"({', '.join(self._stream.primary_key)}) now{where}. {way_out(by, metadata)}"
        )
        return table_conflict(self._stream.id, self._table, problem)

    @property
    def to_merge(self) -> MergeScope | None:
        """All rows that are pending."""
        return MergeScope(self._definition, MAIN_BRANCH, PENDING_BRANCH)

    def append_files(
        self, files: Iterable[IcebergFile], table: Table, transaction: Transaction, origin: Mapping[str, str]
    ) -> None:
        """Add the files to the branch, in one snapshot; create it if there is none."""
        if MAIN_BRANCH not in transaction.table_metadata.refs:
            # PyIceberg cannot create a branch in a table without snapshots.
            self._add_snapshot((), MAIN_BRANCH, table, transaction)
        super().append_files(files, table, transaction, origin)
        keep_for_ever(PENDING_BRANCH, transaction)
        self._definition.write_to(PENDING_BY, transaction)

    def publish(self, operations: TableOperations) -> None:
        """Do nothing: a merge has made the rows part of the content."""


def _schema_of_pending(metadata: TableMetadata) -> Schema:
    """Return the schema that the pending rows were committed with last."""
    head = metadata.snapshot_by_name(PENDING_BRANCH)
    found = metadata.schema_by_id(head.schema_id) if head is not None and head.schema_id is not None else None
    return found or metadata.schema()
