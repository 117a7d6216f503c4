"""Append and overwrite: the branch a sync writes to, what it takes over from earlier syncs, and what publishing means.

An overwrite is written to a branch of its own, and its writer holds the table's fencing token, until it is published.
Branch and token are created, taken over and removed together, in one metadata commit. The platform does not send
acknowledged records again, so the rows of a pending overwrite are kept: a later sync of the same generation continues
its branch, and a sync that appends adopts its rows. An overwrite of another generation removes the branch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ManageSnapshots

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced, FencingToken
from destination_datalake.tables.iceberg.metadata.operations import TableOperations
from destination_datalake.tables.iceberg.snapshots.manifests import has_row_level_deletes, holds_files, live_files
from destination_datalake.tables.iceberg.snapshots.producers import add_files
from destination_datalake.tables.table import LOWEST_GENERATION_PROPERTY, TableConflict, TableName, cannot_write

BRANCH_PREFIX = "airbyte_generation_"
"""Followed by the generation, the name of the branch of a pending overwrite."""

_GENERATION = "airbyte.generation-id"
_SYNC = "airbyte.sync-id"


class WriteMode(ABC):
    """What differs between a sync that appends and one that overwrites. Writes to one branch."""

    def __init__(self, table: TableName, stream: Stream, branch: str) -> None:
        self._table = table
        self._stream = stream
        self._branch = branch

    @abstractmethod
    def begin(self, table: Table, transaction: Transaction) -> None:
        """Make the branch ready, and settle the pending overwrites that earlier syncs left."""

    @abstractmethod
    def require(self, metadata: TableMetadata) -> None:
        """Raise Fenced if another sync has taken the branch over."""

    @abstractmethod
    def publish(self, operations: TableOperations) -> None:
        """Make the branch's rows the table's content, unless they are already."""

    def append_files(self, files: Iterable[IcebergFile], table: Table, transaction: Transaction) -> None:
        """Add the files to the branch, in one snapshot."""
        self._add_snapshot(files, self._branch, table, transaction)

    def _add_snapshot(self, files: Iterable[IcebergFile], branch: str, table: Table, transaction: Transaction) -> None:
        add_files(files, branch, table, transaction, _snapshot_properties(self._stream))


class Append(WriteMode):
    """Writes to main: readers see each commit at once. Any number of syncs may append at the same time."""

    def __init__(self, table: TableName, stream: Stream) -> None:
        super().__init__(table, stream, MAIN_BRANCH)

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Adopt the rows of pending overwrites; remove their branches and the fencing token of their writer."""
        pending = pending_branches(table.metadata)
        lowest = self._lowest_generation(table, pending)
        self._adopt(pending, table, transaction)
        if FencingToken.held(table.metadata.properties) is not None:
            transaction.remove_properties(TOKEN_PROPERTY)
        if lowest is not None:
            _set_lowest_generation(lowest, transaction)

    def require(self, metadata: TableMetadata) -> None:
        """Do nothing: no sync can take main over."""

    def publish(self, operations: TableOperations) -> None:
        """Do nothing: the rows are on main."""

    def _adopt(self, branches: list[str], table: Table, transaction: Transaction) -> None:
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
                self._add_snapshot(files, self._branch, table, transaction)
        _remove_branches(branches, transaction)

    def _lowest_generation(self, table: Table, adopted: list[str]) -> int | None:
        """Return the lowest generation after the adoption; None if it is unknown, as for rows of other writers."""
        existing = lowest_generation(table.metadata.properties)
        added = [self._stream.generation, *(_generation_of(branch) for branch in adopted)]
        if existing is None and (None in added or not _is_empty(table)):
            return None
        return min(generation for generation in (existing, *added) if generation is not None)


class Overwrite(WriteMode):
    """Writes to a branch of its own, which publishing makes the table's content. Holds the table's fencing token."""

    def __init__(self, table: TableName, stream: Stream, token: FencingToken) -> None:
        generation = stream.overwrite_generation
        super().__init__(table, stream, f"{BRANCH_PREFIX}{generation if generation is not None else 'none'}")
        self._token = token

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Take the fencing token; continue the branch of the same generation, or create it; remove all others."""
        transaction.set_properties({TOKEN_PROPERTY: str(self._token)})
        obsolete = pending_branches(table.metadata)
        if self._stream.overwrite_generation is not None and self._branch in obsolete:
            obsolete.remove(self._branch)
        _remove_branches(obsolete, transaction)
        if table.current_snapshot() is None:
            # PyIceberg cannot create a branch in a table without snapshots.
            self._add_snapshot((), MAIN_BRANCH, table, transaction)
        if self._branch not in transaction.table_metadata.refs:
            self._add_snapshot((), self._branch, table, transaction)

    def require(self, metadata: TableMetadata) -> None:
        """Raise Fenced if another sync has taken the token over, or removed the branch."""
        self._token.require(metadata.properties, self._table)
        if self._branch not in metadata.refs:
            raise Fenced(self._table)

    def publish(self, operations: TableOperations) -> None:
        """Make the branch's head the current snapshot of main; remove branch and token. Raises Fenced."""
        operations.commit(self._set_current)

    def _set_current(self, table: Table, transaction: Transaction) -> None:
        self.require(table.metadata)
        with ManageSnapshots(transaction) as snapshots:
            head = table.metadata.refs[self._branch].snapshot_id
            snapshots.set_current_snapshot(head).remove_branch(self._branch)
        _set_lowest_generation(self._stream.generation, transaction)
        transaction.remove_properties(TOKEN_PROPERTY)


def write_mode(table: TableName, stream: Stream, sync: str, properties: Mapping[str, str]) -> WriteMode:
    """Return how the stream writes to a table with these properties. `sync` identifies this sync uniquely."""
    if stream.outdates(lowest_generation(properties)):
        return Overwrite(table, stream, FencingToken.after(properties, sync))
    return Append(table, stream)


def properties_of_new_table(stream: Stream) -> dict[str, str]:
    """Return the generation that a new table is created with; none if it is published only later, or unknown."""
    if stream.generation is None or stream.outdates(None):
        return {}
    return {LOWEST_GENERATION_PROPERTY: str(stream.generation)}


def lowest_generation(properties: Mapping[str, str]) -> int | None:
    """Return the lowest generation of the table's rows; None if the properties do not have it."""
    lowest = properties.get(LOWEST_GENERATION_PROPERTY, "")
    return int(lowest) if lowest.isdecimal() else None


def pending_branches(metadata: TableMetadata) -> list[str]:
    """Return the names of the branches of pending overwrites."""
    return sorted(ref for ref in metadata.refs if ref.startswith(BRANCH_PREFIX))


def _set_lowest_generation(generation: int | None, transaction: Transaction) -> None:
    properties = transaction.table_metadata.properties
    if generation is None and LOWEST_GENERATION_PROPERTY in properties:
        transaction.remove_properties(LOWEST_GENERATION_PROPERTY)
    elif generation is not None and lowest_generation(properties) != generation:
        transaction.set_properties({LOWEST_GENERATION_PROPERTY: str(generation)})


def _snapshot_properties(stream: Stream) -> dict[str, str]:
    """For people who read the table's history only: other engines may expire snapshots at any time."""
    values = {_SYNC: stream.sync_id, _GENERATION: stream.generation}
    return {key: str(value) for key, value in values.items() if value is not None}


def _remove_branches(branches: list[str], transaction: Transaction) -> None:
    if branches:
        with ManageSnapshots(transaction) as snapshots:
            for branch in branches:
                snapshots.remove_branch(branch)


def _generation_of(branch: str) -> int | None:
    generation = branch.removeprefix(BRANCH_PREFIX)
    return int(generation) if generation.isdecimal() else None


def _is_empty(table: Table) -> bool:
    snapshot = table.current_snapshot()
    return snapshot is None or not holds_files(table, snapshot.snapshot_id)
