"""What differs between the ways of writing to a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.typedef import EMPTY_DICT

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import TOKEN_PROPERTY, FencingToken
from destination_datalake.tables.iceberg.branches import ADOPTED, forget_branches, generation_branches
from destination_datalake.tables.iceberg.dedup.definition import MergeScope
from destination_datalake.tables.iceberg.metadata.operations import TableOperations
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.manifests import has_row_level_deletes, live_files
from destination_datalake.tables.iceberg.write_modes.generations import (
    lowest_generation_with,
    says_lowest_generation,
    set_lowest_generation,
)
from destination_datalake.tables.table import TableConflict, TableName, cannot_write

_GENERATION = "airbyte.generation-id"
_SYNC = "airbyte.sync-id"


class WriteMode(ABC):
    """How one sync writes. Writes to one branch."""

    def __init__(self, table: TableName, stream: Stream, branch: str) -> None:
        self._table = table
        self._stream = stream
        self._branch = branch

    @abstractmethod
    def begin(self, table: Table, transaction: Transaction) -> None:
        """Make the branch ready, and settle what earlier syncs left, unless there is a `leftover_merge`."""

    @abstractmethod
    def require(self, metadata: TableMetadata) -> None:
        """Raise Fenced if another sync has taken the branch over, TableConflict if it cannot be written to any more."""

    @abstractmethod
    def publish(self, operations: TableOperations) -> None:
        """Make the branch's rows the table's content, unless they are already."""

    def published(self) -> WriteMode:
        """Return how to write on after the branch's rows have become the table's content."""
        return self

    def end_merge(self, table: Table, transaction: Transaction) -> None:  # noqa: B027
        """Add to the commit of a merge what belongs to it: nothing."""

    @property
    def leftover_merge(self) -> MergeScope | None:
        """What has to be merged after `begin`, before anything is written; then `begin` again."""
        return None

    @property
    def to_merge(self) -> MergeScope | None:
        """What has to be merged before `publish`."""
        return None

    def snapshot_properties(self, branch: str, metadata: TableMetadata) -> dict[str, str]:
        """Return the properties of a snapshot on a branch.

        Sync and generation are for people who read the table's history only: other engines may expire snapshots at any
        time. What is decided by `origin` is decided only while the snapshots are there.
        """
        values = {_SYNC: self._stream.sync_id, _GENERATION: self._stream.generation}
        own = {key: str(value) for key, value in values.items() if value is not None}
        return {**own, **(says_lowest_generation(metadata) if branch == MAIN_BRANCH else {})}

    def append_files(
        self, files: Iterable[IcebergFile], table: Table, transaction: Transaction, origin: Mapping[str, str]
    ) -> None:
        """Add the files to the branch, in one snapshot, which says what their `origin` is."""
        self._add_snapshot(files, self._branch, table, transaction, origin)

    def _add_snapshot(
        self,
        files: Iterable[IcebergFile],
        branch: str,
        table: Table,
        transaction: Transaction,
        origin: Mapping[str, str] = EMPTY_DICT,
    ) -> None:
        properties = self.snapshot_properties(branch, transaction.table_metadata)
        change_branch(Change([*files]), branch, table, transaction, {**properties, **origin})

    def _take_over(self, table: Table, transaction: Transaction) -> None:
        """Adopt the rows of pending overwrites; remove their branches and the fencing token of their writer."""
        branches = generation_branches(table.metadata)
        lowest = lowest_generation_with(self._stream, branches, table)
        if lowest is not None:
            set_lowest_generation(lowest, transaction)
        self._adopt(branches, table, transaction)
        release_token(transaction)

    def _adopt(self, branches: Sequence[str], table: Table, transaction: Transaction) -> None:
        for branch in branches:
            head = table.metadata.refs[branch].snapshot_id
            if has_row_level_deletes(table, head):
                problem = (
                    f"its branch {branch}, which an unpublished overwrite has left, has rows deleted by delete files, "
                    "which cannot be adopted. Compact the branch (rewrite_data_files with delete-file-threshold 1), or "
                    "let the overwrite be finished by a sync of its generation, or give its rows up (ALTER TABLE ... "
                    f"DROP BRANCH {branch})."
                )
                raise TableConflict(cannot_write(self._stream.id, self._table, problem))
            if files := live_files(table, head):
                self.append_files(files, table, transaction, ADOPTED)
        forget_branches(branches, transaction)


def release_token(transaction: Transaction) -> None:
    """Remove the fencing token, whoever holds it."""
    if FencingToken.held(transaction.table_metadata.properties) is not None:
        transaction.remove_properties(TOKEN_PROPERTY)
