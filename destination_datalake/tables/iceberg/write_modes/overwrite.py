"""Overwrite: rows are collected on a branch, which publishing makes the table's content."""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ManageSnapshots

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced, FencingToken, Overwrites
from destination_datalake.tables.iceberg.branches import (
    GENERATION_PREFIX,
    PENDING_BRANCH,
    generation_branches,
    keep_for_ever,
    remove_branches,
)
from destination_datalake.tables.iceberg.dedup.definition import (
    PENDING_BY,
    UNIQUE_BY,
    Definition,
    MergeScope,
    remove_definition,
)
from destination_datalake.tables.iceberg.metadata.operations import TableOperations
from destination_datalake.tables.iceberg.write_modes.append import Append
from destination_datalake.tables.iceberg.write_modes.dedup import AppendDedup
from destination_datalake.tables.iceberg.write_modes.generations import (
    generation_of,
    set_lowest_generation,
    set_overwrites,
)
from destination_datalake.tables.iceberg.write_modes.mode import WriteMode
from destination_datalake.tables.table import LOWEST_GENERATION_PROPERTY, TableName


class Overwrite(WriteMode):
    """Writes to a branch of its own, which publishing makes the table's content. Holds the table's fencing token.

    With a `definition` the branch is deduplicated before it is published.
    """

    def __init__(self, table: TableName, stream: Stream, token: FencingToken, definition: Definition | None) -> None:
        generation = stream.overwrite_generation
        super().__init__(table, stream, f"{GENERATION_PREFIX}{generation if generation is not None else 'none'}")
        self._token = token
        self._definition = definition

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Take the fencing token; continue the branch of the same generation, or create it; remove all others."""
        transaction.set_properties({TOKEN_PROPERTY: str(self._token)})
        obsolete = generation_branches(table.metadata)
        if self.is_pending(table.metadata):
            obsolete.remove(self._branch)
        removed = [generation for branch in obsolete if (generation := generation_of(branch)) is not None]
        overwrites = Overwrites.of(table.metadata.properties).begun(self._stream.overwrite_generation, removed)
        set_overwrites(overwrites, transaction)
        remove_branches(obsolete, transaction)
        if table.current_snapshot() is None:
            # PyIceberg cannot create a branch in a table without snapshots.
            self._add_snapshot((), MAIN_BRANCH, table, transaction)
        if self._branch not in transaction.table_metadata.refs:
            self._add_snapshot((), self._branch, table, transaction)
            keep_for_ever(self._branch, transaction)

    def is_pending(self, metadata: TableMetadata) -> bool:
        """Whether the table has the branch of an earlier sync that this one continues."""
        return self._stream.overwrite_generation is not None and self._branch in generation_branches(metadata)

    def require(self, metadata: TableMetadata) -> None:
        """Raise Fenced if another sync has taken the token over, or removed the branch."""
        self._token.require(metadata.properties, self._table)
        if self._branch not in metadata.refs:
            raise Fenced(self._table)

    def snapshot_properties(self, branch: str, metadata: TableMetadata) -> dict[str, str]:
        """Return the properties of a snapshot on a branch; on its own all rows are of one generation."""
        properties, generation = super().snapshot_properties(branch, metadata), self._stream.generation
        if branch == self._branch and generation is not None:
            return {**properties, LOWEST_GENERATION_PROPERTY: str(generation)}
        return properties

    @property
    def to_merge(self) -> MergeScope | None:
        """The branch itself: nothing of the present content stays."""
        return None if self._definition is None else MergeScope(self._definition, self._branch, None)

    def publish(self, operations: TableOperations) -> None:
        """Make the branch's head the current snapshot of main; remove branch and token. Raises Fenced."""
        operations.commit(self.end_merge)

    def published(self) -> WriteMode:
        """Return how to append to the content."""
        if self._definition is not None:
            return AppendDedup(self._table, self._stream, self._definition)
        return Append(self._table, self._stream)

    def end_merge(self, table: Table, transaction: Transaction) -> None:
        """Publish in the same commit.

        A branch that was merged has forgotten which keys were deleted: rows of these keys that the content has would
        stay if it was adopted.
        """
        self.require(table.metadata)
        with ManageSnapshots(transaction) as snapshots:
            head = transaction.table_metadata.refs[self._branch].snapshot_id
            snapshots.set_current_snapshot(head).remove_branch(self._branch)
        # What waits for its deduplication belongs to the former content.
        remove_branches([PENDING_BRANCH], transaction)
        remove_definition(PENDING_BY, transaction)
        if self._definition is None:
            remove_definition(UNIQUE_BY, transaction)
        else:
            self._definition.write_to(UNIQUE_BY, transaction)
        set_lowest_generation(self._stream.generation, transaction)
        set_overwrites(Overwrites.of(transaction.table_metadata.properties).published(), transaction)
        transaction.remove_properties(TOKEN_PROPERTY)
