"""Where a sync's files go in an Iceberg table, and what becomes of replacements that were never published.

A replacement is kept on a branch until it is published, and whoever writes to the branch holds the table's fencing
token. Both are taken, left and taken over together, in one metadata commit. What is on the branch was acknowledged, so
the platform will not send it again: a replacement of the same generation goes on with it, a newer one makes it
worthless, and a sync that appends takes its rows in.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ManageSnapshots

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced, FencingToken
from destination_datalake.tables.iceberg.files import holds_files, live_files, row_level_deletes
from destination_datalake.tables.iceberg.summary import lowest_generation, note_lowest_generation, summary_of
from destination_datalake.tables.table import TableConflict, TableName

BRANCH = "airbyte_generation_"
"""Begins the name of the branch that an unfinished replacement is kept on; the generation follows."""


@dataclass(frozen=True, slots=True)
class Target:
    """The branch that a sync writes to, and the token that lets only this sync do so; main needs none."""

    branch: str = MAIN_BRANCH
    token: FencingToken | None = None

    def require(self, metadata: TableMetadata, table: TableName) -> None:
        """Raise Fenced if the branch is not this sync's any more."""
        if self.token is None:
            return
        self.token.require(metadata.properties, table)
        if self.branch not in metadata.refs:
            raise Fenced(table)


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches of one stream's table. `sync` names this sync and no other."""

    table: TableName
    stream: Stream
    sync: str

    def settle(self, table: Table, transaction: Transaction) -> Target:
        """Decide where this sync's files go, and take over what earlier syncs, dead or alive, have left."""
        if self.stream.outdates(lowest_generation(table.metadata.properties)):
            return self._begin_replacement(table, transaction)
        self._take_in(table, transaction)
        return Target()

    def publish(self, target: Target, table: Table, transaction: Transaction) -> None:
        """Make the branch's head the table's current state; drop branch and token."""
        target.require(table.metadata, self.table)
        with ManageSnapshots(transaction) as snapshots:
            snapshots.set_current_snapshot(table.metadata.refs[target.branch].snapshot_id).remove_branch(target.branch)
        note_lowest_generation(transaction, self.stream.generation)
        transaction.remove_properties(TOKEN_PROPERTY)

    def _begin_replacement(self, table: Table, transaction: Transaction) -> Target:
        generation = self.stream.replacement_generation
        target = Target(
            f"{BRANCH}{generation if generation is not None else 'none'}",
            FencingToken.after(table.metadata.properties, self.sync),
        )
        transaction.set_properties({TOKEN_PROPERTY: str(target.token)})
        left = unpublished(table.metadata)
        if generation is not None and target.branch in left:
            left.remove(target.branch)
        self._remove(left, transaction)
        if table.current_snapshot() is None:
            # PyIceberg makes no branch in a table without snapshots.
            self._append_nothing(MAIN_BRANCH, transaction)
        if target.branch not in transaction.table_metadata.refs:
            self._append_nothing(target.branch, transaction)
        return target

    def _take_in(self, table: Table, transaction: Transaction) -> None:
        left = unpublished(table.metadata)
        lowest = self._lowest_generation(table, left)
        for branch in left:
            head = table.metadata.refs[branch].snapshot_id
            if row_level_deletes(table, head):
                raise TableConflict(
                    f"Cannot write stream {self.stream.id} to table {self.table}: its branch {branch}, which an "
                    "unfinished replacement has left, has rows deleted by delete files, which cannot be taken along. "
                    f"Compact the branch (rewrite_data_files with delete-file-threshold 1), or let the replacement be "
                    f"finished by a sync of its generation, or give its rows up (ALTER TABLE ... DROP BRANCH {branch})."
                )
            if files := live_files(table, head):
                update = transaction.update_snapshot(snapshot_properties=summary_of(self.stream))
                with update.fast_append() as append:
                    for file in files:
                        append.append_data_file(file)
        self._remove(left, transaction)
        if FencingToken.held(table.metadata.properties) is not None:
            transaction.remove_properties(TOKEN_PROPERTY)
        if lowest is not None:
            note_lowest_generation(transaction, lowest)

    def _lowest_generation(self, table: Table, left: list[str]) -> int | None:
        """What the table's rows will have as their lowest generation; None if others filled it, or nobody counts."""
        there = lowest_generation(table.metadata.properties)
        generations = [self.stream.generation, *(_generation(branch) for branch in left)]
        if there is None and (None in generations or not _empty(table)):
            return None
        return min(generation for generation in (there, *generations) if generation is not None)

    def _append_nothing(self, branch: str, transaction: Transaction) -> None:
        with transaction.update_snapshot(snapshot_properties=summary_of(self.stream), branch=branch).fast_append():
            pass

    @staticmethod
    def _remove(branches: list[str], transaction: Transaction) -> None:
        if branches:
            with ManageSnapshots(transaction) as snapshots:
                for branch in branches:
                    snapshots.remove_branch(branch)


def unpublished(metadata: TableMetadata) -> list[str]:
    """Return the branches of replacements that were never published."""
    return sorted(ref for ref in metadata.refs if ref.startswith(BRANCH))


def _generation(branch: str) -> int | None:
    said = branch.removeprefix(BRANCH)
    return int(said) if said.isdecimal() else None


def _empty(table: Table) -> bool:
    snapshot = table.current_snapshot()
    return snapshot is None or not holds_files(table, snapshot.snapshot_id)
