"""The two ways of writing to an Iceberg table: appending to main, and replacing the content on a branch.

A replacement is written to a branch of its own, and its writer holds the table's fencing token, until it is published.
Branch and token are created, taken over and removed together, in one metadata commit. The platform does not send
acknowledged records again, so the rows of an unpublished branch are kept: a later sync of the same generation continues
the branch, and a sync that appends merges it into main. A replacement of another generation removes it.
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
from destination_datalake.tables.iceberg.files import has_row_level_deletes, holds_files, live_files
from destination_datalake.tables.iceberg.operations import TableOperations
from destination_datalake.tables.table import TableConflict, TableName

BRANCH_PREFIX = "airbyte_generation_"
"""Followed by the generation, the name of the branch of an unpublished replacement."""

_LOWEST_GENERATION = "airbyte.lowest-generation-id"
"""A table property: the lowest generation of the table's rows. Tables filled by other writers do not have it."""

_GENERATION = "airbyte.generation-id"
_SYNC = "airbyte.sync-id"


class BranchWriter(ABC):
    """Writes one stream to one branch of its table."""

    def __init__(self, table: TableName, stream: Stream, branch: str) -> None:
        self._table = table
        self._stream = stream
        self._branch = branch

    @abstractmethod
    def begin(self, table: Table, transaction: Transaction) -> None:
        """Make the branch ready, and settle the unpublished branches that earlier syncs left."""

    @abstractmethod
    def require(self, metadata: TableMetadata) -> None:
        """Raise Fenced if another sync has taken the branch over."""

    @abstractmethod
    def publish(self, operations: TableOperations) -> None:
        """Make the branch's rows the table's content, unless they are already."""

    def append(self, files: Iterable[IcebergFile], transaction: Transaction) -> None:
        """Add the files to the branch, in one snapshot."""
        self._append(files, self._branch, transaction)

    def _append(self, files: Iterable[IcebergFile], branch: str, transaction: Transaction) -> None:
        update = transaction.update_snapshot(snapshot_properties=_snapshot_properties(self._stream), branch=branch)
        with update.fast_append() as append:
            for file in files:
                append.append_data_file(file)


class AppendToMain(BranchWriter):
    """Appends: readers see each commit at once. Any number of syncs may append at the same time."""

    def __init__(self, table: TableName, stream: Stream) -> None:
        super().__init__(table, stream, MAIN_BRANCH)

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Merge unpublished branches into main; remove them and the fencing token of their writer."""
        unpublished = unpublished_branches(table.metadata)
        lowest = self._lowest_generation(table, unpublished)
        self._merge(unpublished, table, transaction)
        if FencingToken.held(table.metadata.properties) is not None:
            transaction.remove_properties(TOKEN_PROPERTY)
        if lowest is not None:
            _set_lowest_generation(lowest, transaction)

    def require(self, metadata: TableMetadata) -> None:
        """Do nothing: no sync can take main over."""

    def publish(self, operations: TableOperations) -> None:
        """Do nothing: the rows are on main."""

    def _merge(self, branches: list[str], table: Table, transaction: Transaction) -> None:
        for branch in branches:
            head = table.metadata.refs[branch].snapshot_id
            if has_row_level_deletes(table, head):
                raise TableConflict(
                    f"Cannot write stream {self._stream.id} to table {self._table}: its branch {branch}, which an "
                    "unfinished replacement has left, has rows deleted by delete files, which cannot be taken along. "
                    f"Compact the branch (rewrite_data_files with delete-file-threshold 1), or let the replacement be "
                    f"finished by a sync of its generation, or give its rows up (ALTER TABLE ... DROP BRANCH {branch})."
                )
            if files := live_files(table, head):
                self._append(files, self._branch, transaction)
        _remove_branches(branches, transaction)

    def _lowest_generation(self, table: Table, merged: list[str]) -> int | None:
        """The table's lowest generation after the merge; None if other writers filled the table, or none is known."""
        existing = lowest_generation(table.metadata.properties)
        added = [self._stream.generation, *(_generation_of(branch) for branch in merged)]
        if existing is None and (None in added or not _is_empty(table)):
            return None
        return min(generation for generation in (existing, *added) if generation is not None)


class ReplaceOnBranch(BranchWriter):
    """Replaces the content: readers see main as it was until the branch is published in one metadata commit."""

    def __init__(self, table: TableName, stream: Stream, token: FencingToken) -> None:
        generation = stream.replacement_generation
        super().__init__(table, stream, f"{BRANCH_PREFIX}{generation if generation is not None else 'none'}")
        self._token = token

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Take the fencing token; continue the branch of the same generation, or create it; remove all others."""
        transaction.set_properties({TOKEN_PROPERTY: str(self._token)})
        obsolete = unpublished_branches(table.metadata)
        if self._stream.replacement_generation is not None and self._branch in obsolete:
            obsolete.remove(self._branch)
        _remove_branches(obsolete, transaction)
        if table.current_snapshot() is None:
            # PyIceberg cannot create a branch in a table without snapshots.
            self._append((), MAIN_BRANCH, transaction)
        if self._branch not in transaction.table_metadata.refs:
            self._append((), self._branch, transaction)

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


def writer_for(table: TableName, stream: Stream, sync: str, properties: Mapping[str, str]) -> BranchWriter:
    """Return how the stream writes to a table with these properties. `sync` identifies this sync uniquely."""
    if stream.outdates(lowest_generation(properties)):
        return ReplaceOnBranch(table, stream, FencingToken.after(properties, sync))
    return AppendToMain(table, stream)


def properties_of_new_table(stream: Stream) -> dict[str, str]:
    """Return the generation that a new table is created with; none if it is published only later, or unknown."""
    if stream.generation is None or stream.outdates(None):
        return {}
    return {_LOWEST_GENERATION: str(stream.generation)}


def lowest_generation(properties: Mapping[str, str]) -> int | None:
    """Return the lowest generation of the table's rows; None if the properties do not have it."""
    lowest = properties.get(_LOWEST_GENERATION, "")
    return int(lowest) if lowest.isdecimal() else None


def unpublished_branches(metadata: TableMetadata) -> list[str]:
    """Return the names of the branches of unpublished replacements."""
    return sorted(ref for ref in metadata.refs if ref.startswith(BRANCH_PREFIX))


def _set_lowest_generation(generation: int | None, transaction: Transaction) -> None:
    properties = transaction.table_metadata.properties
    if generation is None and _LOWEST_GENERATION in properties:
        transaction.remove_properties(_LOWEST_GENERATION)
    elif generation is not None and lowest_generation(properties) != generation:
        transaction.set_properties({_LOWEST_GENERATION: str(generation)})


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
