"""Write modes: how a sync commits and publishes rows, and what it does with unpublished rows of earlier syncs.

A sync that appends commits to the branch `main`, the content that readers see. A sync that appends with deduplication
commits to the branch of pending rows, from which a merge moves the rows to main. A sync that overwrites commits to a
branch of its own, and holds the table's fencing token (see `FencingToken`) until the sync publishes the branch. One
commit creates, takes over or removes both the branch and the token.

An overwrite is pending until a sync publishes its branch. The platform does not send acknowledged records again, so the
table keeps the rows of a pending overwrite. The platform assigns a generation number to each refresh of a stream. A
later overwrite of the same generation continues the branch. A sync that appends adopts the rows: the sync moves these
rows to the branch to which it commits. An overwrite of another generation removes the branch and its rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.typedef import EMPTY_DICT

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, TOKEN_PROPERTY, Fenced, FencingToken, Overwrites
from destination_datalake.tables.iceberg.branches import (
    ADOPTED,
    GENERATION_PREFIX,
    PENDING_BRANCH,
    disable_ref_expiry,
    generation_branches,
    history,
    remove_branches,
    remove_merged_branches,
    summary_number,
)
from destination_datalake.tables.iceberg.commit import TableOperations, set_property
from destination_datalake.tables.iceberg.dedup.plan import (
    PENDING_BY,
    UNIQUE_BY,
    Definition,
    MergeScope,
    pending_scope,
    remedy_for_key,
)
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import (
    BranchFiles,
    has_row_level_deletes,
    live_manifests,
)
from destination_datalake.tables.table import (
    LOWEST_GENERATION_PROPERTY,
    PUBLISHED_BY_PROPERTY,
    TableConflict,
    TableName,
    cannot_write,
    number_property,
    table_conflict,
    whole_number,
)


def properties_of_new_table(stream: Stream) -> dict[str, str]:
    """Return the table property with the generation of a new table.

    The result is empty if the generation is unknown. The result is also empty if the stream overwrites the table,
    because the publication of the overwrite sets the property.
    """
    if stream.generation is None or stream.overwrites_table:
        return {}
    return {LOWEST_GENERATION_PROPERTY: str(stream.generation)}


def lowest_generation(metadata: TableMetadata) -> int | None:
    """Return the lowest generation of the table's rows, or None if the lowest generation is unknown.

    Snapshots of other writers record no generation. This function skips such snapshots even if they replace the
    content. Otherwise, a sync that continues the former generation would overwrite the new content, but would send only
    the few rows that the earlier syncs of this generation have not sent.
    """
    lowest = _lowest(metadata)
    for snapshot in history(MAIN_BRANCH, metadata):
        recorded = summary_number(snapshot, LOWEST_GENERATION_PROPERTY)
        if lowest is not None and recorded is not None:
            return min(lowest, recorded)
    return lowest


def lowest_generation_property(metadata: TableMetadata) -> dict[str, str]:
    """Return the snapshot property with the lowest generation of the table's rows. Empty if it is unknown."""
    lowest = _lowest(metadata)
    return {} if lowest is None else {LOWEST_GENERATION_PROPERTY: str(lowest)}


def lowest_generation_after_adoption(stream: Stream, adopted: Iterable[str], table: Table) -> int | None:
    """Return the lowest generation of the table, the stream and the adopted branches, or None if it is unknown.

    `adopted` contains the branches of pending overwrites whose rows the stream adopts. If the table records a
    generation, the result is known. Otherwise, it is unknown if the table contains rows, or if the stream or an adopted
    branch has no generation.
    """
    existing = lowest_generation(table.metadata)
    added = [stream.generation, *(generation_of(branch) for branch in adopted)]
    # Without a recorded generation, rows on main may be of any generation. A table without live files has no such rows.
    if existing is None and (None in added or live_manifests(table.current_snapshot(), table.io)):
        return None
    return min(generation for generation in (existing, *added) if generation is not None)


def set_lowest_generation(generation: int | None, transaction: Transaction) -> None:
    """Record the lowest generation in a table property. If `generation` is None, remove the property."""
    set_property(LOWEST_GENERATION_PROPERTY, None if generation is None else str(generation), transaction)


def set_overwrites(overwrites: Overwrites, transaction: Transaction) -> None:
    """Record the generations of overwrites in a table property. Do nothing if the property has this value already."""
    if overwrites != Overwrites.load(transaction.table_metadata.properties):
        transaction.set_properties({OVERWRITES_PROPERTY: str(overwrites)})


def _lowest(metadata: TableMetadata) -> int | None:
    return number_property(metadata.properties, LOWEST_GENERATION_PROPERTY, f"the table at {metadata.location}")


def generation_of(branch: str) -> int | None:
    """Return the generation in the name of a pending overwrite's branch. None if the overwrite has no generation."""
    return whole_number(branch.removeprefix(GENERATION_PREFIX))


# --- the base of all modes --------------------------------------------------------------------------------------------


_GENERATION = "airbyte.generation-id"
_SYNC = "airbyte.sync-id"


class WriteMode(ABC):
    """The way in which one sync writes a stream to the table. `branch` is the branch to which the sync commits.

    `token` is the fencing token that the sync holds, or None. If the sync continues a published overwrite, `publisher`
    is the ID of the sync that published the overwrite, or an empty string if this ID is unknown. Otherwise, `publisher`
    is None, and the sync may add rows to any content.
    """

    def __init__(
        self, table: TableName, stream: Stream, branch: str, token: FencingToken | None, publisher: str | None = None
    ) -> None:
        self._table = table
        self._stream = stream
        self._branch = branch
        self._token = token
        self._publisher = publisher

    @abstractmethod
    def begin(self, table: Table, transaction: Transaction) -> None:
        """Prepare the branch, and take over or remove the unpublished branches of earlier syncs.

        If a merge of pending rows must run first, keep the unpublished branches, and set `leftover_merge`.
        """

    def require(self, metadata: TableMetadata) -> None:
        """Raise Fenced if this sync must stop writing.

        Either another sync has taken the fencing token, or another overwrite has replaced the overwrite that this sync
        continues.
        """
        if self._token is not None:
            self._token.require(metadata.properties, self._table)
        if self._publisher not in (None, metadata.properties.get(PUBLISHED_BY_PROPERTY, "")):
            raise Fenced(self._table)

    def publish(self, operations: TableOperations) -> Table | None:  # noqa: ARG002
        """Make the rows on the branch the table's content. Return the table after the commit.

        In the base class, do nothing and return None, because publication requires no commit.
        """
        return None

    def published(self) -> WriteMode:
        """Return the write mode for the sync's commits after the publication of the branch."""
        return self

    def end_merge(self, table: Table, transaction: Transaction) -> None:  # noqa: B027
        """Add the changes that this mode requires to the commit of a merge. The base class adds no changes."""

    @property
    def leftover_merge(self) -> MergeScope | None:
        """The merge of earlier syncs' pending rows that must run before this sync writes rows, or None.

        After the merge, call `begin` again.
        """
        return None

    @property
    def to_merge(self) -> MergeScope | None:
        """The merge to run before `publish`, or None without deduplication."""
        return None

    def snapshot_properties(self, branch: str, metadata: TableMetadata) -> dict[str, str]:
        """Return the summary properties for a new snapshot on a branch.

        The sync ID and the generation ID are only for people who read the table's history. The connector does not read
        these two properties, because other engines may expire snapshots at any time.
        """
        values = {_SYNC: self._stream.sync_id, _GENERATION: self._stream.generation}
        own = {key: str(value) for key, value in values.items() if value is not None}
        return {**own, **(lowest_generation_property(metadata) if branch == MAIN_BRANCH else {})}

    def append_files(
        self, files: Iterable[IcebergFile], table: Table, transaction: Transaction, origin: Mapping[str, str]
    ) -> None:
        """Add the files to the branch in one snapshot.

        `origin` is the summary property that records where the files come from: `branches.NEW` or `branches.ADOPTED`.
        """
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

    def _adopt_pending(self, table: Table, transaction: Transaction) -> None:
        """Move the rows of pending overwrites to this sync's branch, and remove the branches of these overwrites.

        Also take the token from the sync that holds it. Raises TableConflict if the branch of a pending overwrite
        contains delete files, because this connector cannot move the rows of such a branch.
        """
        branches = generation_branches(table.metadata)
        lowest = lowest_generation_after_adoption(self._stream, branches, table)
        if lowest is not None:
            set_lowest_generation(lowest, transaction)
        self._adopt(branches, table, transaction)
        self._take_token(transaction)

    def _take_token(self, transaction: Transaction) -> None:
        """Take the fencing token, or remove the token if this sync needs none. Both fence the former holder."""
        set_property(TOKEN_PROPERTY, str(self._token) if self._token is not None else None, transaction)

    def _adopt(self, branches: Sequence[str], table: Table, transaction: Transaction) -> None:
        for branch in branches:
            if has_row_level_deletes(table.metadata.snapshot_by_name(branch), table.io):
                problem = (
                    f"its branch {branch} of an unpublished overwrite contains delete files, so its rows cannot be "
                    "adopted. Compact the branch (Spark: rewrite_data_files with delete-file-threshold 1), finish "
                    "the overwrite with a sync of its generation, or discard the rows of the branch (ALTER TABLE ... "
                    f"DROP BRANCH {branch})."
                )
                raise TableConflict(cannot_write(self._stream.id, self._table, problem))
            # The same data files get entries on this branch. No file is copied. Keep all metrics for these entries.
            if files := [file.entry for file in BranchFiles(metrics=None).on_branch(table, branch)]:
                self.append_files(files, table, transaction, ADOPTED)
        remove_merged_branches(branches, transaction)


# --- append -----------------------------------------------------------------------------------------------------------


class Append(WriteMode):
    """A write mode that commits to main, so readers see each commit immediately.

    Any number of syncs may append at the same time, unless one of them holds a `token`. Before the first commit, the
    sync must merge the pending rows of earlier syncs (see `leftover_merge`).
    """

    def __init__(
        self, table: TableName, stream: Stream, token: FencingToken | None = None, publisher: str | None = None
    ) -> None:
        super().__init__(table, stream, MAIN_BRANCH, token, publisher)
        self._leftover_merge: MergeScope | None = None

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Move the rows of pending overwrites to main, remove the branches of these overwrites, and take the token.

        If earlier syncs have left pending rows, only take the token, because `leftover_merge` must run first. Raises
        TableConflict if the branch of a pending overwrite contains delete files.
        """
        self._leftover_merge = pending_scope(table.metadata)
        # Adopt only after the merge: rows that an append adds to main would otherwise take part in the merge, which
        # deduplicates them.
        if self._leftover_merge is None:
            self._adopt_pending(table, transaction)
        else:
            self._take_token(transaction)

    @property
    def leftover_merge(self) -> MergeScope | None:
        """The merge of pending rows that must run before this sync adds rows without deduplication, or None."""
        return self._leftover_merge

    def append_files(
        self, files: Iterable[IcebergFile], table: Table, transaction: Transaction, origin: Mapping[str, str]
    ) -> None:
        """Add the files to main in one snapshot. Remove the table property that records unique rows on main."""
        super().append_files(files, table, transaction, origin)
        # The new rows may repeat keys, so the next merge must compare all rows on main.
        set_property(UNIQUE_BY, None, transaction)


# --- append and deduplicate -------------------------------------------------------------------------------------------


class AppendDedup(WriteMode):
    """A write mode that commits to the branch of pending rows, from which merges move the rows to main.

    Any number of syncs may write at the same time, unless one of them holds a `token`.
    """

    def __init__(
        self,
        table: TableName,
        stream: Stream,
        definition: Definition,
        token: FencingToken | None,
        publisher: str | None,
    ) -> None:
        super().__init__(table, stream, PENDING_BRANCH, token, publisher)
        self._definition = definition

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Move the rows of pending overwrites to the branch of pending rows. Remove the branches of these overwrites.

        Also take the token. Raises TableConflict if the rows on main are unique by another key, or if the branch of a
        pending overwrite contains delete files. Also raises TableConflict if the pending rows were written before the
        table had all columns of the key, because a missing column would be null in all these rows.
        """
        self._require_key(table.metadata)
        pending = pending_scope(table.metadata)
        if pending is not None and not self._definition.has_columns(_schema_of_pending(table.metadata)):
            raise self._conflict(pending.definition, "its pending rows were written with", table.metadata)
        if pending is not None:
            # `_require_key` has checked the key. A new cursor also applies to the rows that are already pending.
            self._definition.write_to(PENDING_BY, transaction)
        self._adopt_pending(table, transaction)

    def require(self, metadata: TableMetadata) -> None:
        """Raise TableConflict if the rows on main are unique by another key.

        Also raise Fenced in the same cases as the base class.
        """
        super().require(metadata)
        self._require_key(metadata)

    def _require_key(self, metadata: TableMetadata) -> None:
        unique = Definition.load(UNIQUE_BY, metadata)
        if unique is not None and unique.key != self._definition.key:
            raise self._conflict(unique, "its rows are unique by", metadata)

    def _conflict(self, by: Definition, fact: str, metadata: TableMetadata) -> TableConflict:
        schema = metadata.schema()
        # A field whose type has changed may be stored in a new column, so that the key contains another field ID.
        where = "" if self._definition.has_columns(schema) else ", in a new column"
        problem = (
            f"{fact} the primary key ({by.key_names(schema)}), but the primary key of the stream is now "
            f"({', '.join(self._stream.primary_key)}){where}. {remedy_for_key(by, metadata)}"
        )
        return table_conflict(self._stream.id, self._table, problem)

    @property
    def to_merge(self) -> MergeScope | None:
        """The merge of all pending rows into main."""
        return MergeScope(self._definition, MAIN_BRANCH, PENDING_BRANCH)

    def append_files(
        self, files: Iterable[IcebergFile], table: Table, transaction: Transaction, origin: Mapping[str, str]
    ) -> None:
        """Add the files to the branch of pending rows in one snapshot. Create the branch if it does not exist."""
        if MAIN_BRANCH not in transaction.table_metadata.refs:
            # PyIceberg cannot create a branch in a table without snapshots.
            self._add_snapshot((), MAIN_BRANCH, table, transaction)
        super().append_files(files, table, transaction, origin)
        # After the snapshot, because only an existing branch has a retention. All changes become visible in one commit.
        disable_ref_expiry(PENDING_BRANCH, transaction)
        self._definition.write_to(PENDING_BY, transaction)


def _schema_of_pending(metadata: TableMetadata) -> Schema:
    """Return the schema of the pending branch's head, or the table's schema if the head records no schema."""
    head = metadata.snapshot_by_name(PENDING_BRANCH)
    schema = metadata.schema_by_id(head.schema_id) if head is not None and head.schema_id is not None else None
    return schema or metadata.schema()


# --- overwrite --------------------------------------------------------------------------------------------------------


class Overwrite(WriteMode):
    """A write mode that commits to a branch of its own, which replaces the table's content on publication.

    The sync holds the fencing token. With a `definition`, publication deduplicates the rows on the branch. With
    `exclusive`, the sync keeps the token after publication.
    """

    def __init__(
        self,
        table: TableName,
        stream: Stream,
        token: FencingToken,
        definition: Definition | None,
        *,
        exclusive: bool = False,
    ) -> None:
        generation = stream.overwrite_generation
        branch = f"{GENERATION_PREFIX}{generation if generation is not None else 'none'}"
        super().__init__(table, stream, branch, token)
        self._definition = definition
        self._exclusive = exclusive

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Take the fencing token. Continue or create this overwrite's branch, and remove those of other overwrites."""
        self._take_token(transaction)
        # An overwrite without a generation cannot recognise its own earlier branch, so it removes that branch too.
        obsolete = generation_branches(table.metadata)
        if self.is_pending(table.metadata):
            obsolete.remove(self._branch)
        removed = [generation for branch in obsolete if (generation := generation_of(branch)) is not None]
        overwrites = Overwrites.load(table.metadata.properties).begun(self._stream.overwrite_generation, removed)
        set_overwrites(overwrites, transaction)
        # No other branch contains the files of these branches, so expiry may delete them together with their snapshots.
        remove_branches(obsolete, transaction)
        if table.current_snapshot() is None:
            # PyIceberg cannot create a branch in a table without snapshots.
            self._add_snapshot((), MAIN_BRANCH, table, transaction)
        if self._branch not in transaction.table_metadata.refs:
            self._add_snapshot((), self._branch, table, transaction)
            disable_ref_expiry(self._branch, transaction)

    def is_pending(self, metadata: TableMetadata) -> bool:
        """Return whether an earlier sync has left a branch of this generation. This sync then continues the branch."""
        return self._stream.overwrite_generation is not None and self._branch in generation_branches(metadata)

    def require(self, metadata: TableMetadata) -> None:
        """Raise Fenced if another sync has taken the fencing token, or if the branch no longer exists."""
        super().require(metadata)
        if self._branch not in metadata.refs:
            raise Fenced(self._table)

    def snapshot_properties(self, branch: str, metadata: TableMetadata) -> dict[str, str]:
        """Return the summary properties for a new snapshot on a branch.

        All rows on the overwrite's own branch have the same generation, so this generation is the lowest one.
        """
        properties, generation = super().snapshot_properties(branch, metadata), self._stream.generation
        if branch == self._branch and generation is not None:
            return {**properties, LOWEST_GENERATION_PROPERTY: str(generation)}
        return properties

    @property
    def to_merge(self) -> MergeScope | None:
        """The merge of the rows on the branch with each other, or None without deduplication.

        The merge leaves out the rows on main, because the overwrite replaces them.
        """
        return None if self._definition is None else MergeScope(self._definition, self._branch, None)

    def publish(self, operations: TableOperations) -> Table:
        """Make the head of the branch the current snapshot of main, and remove the branch. Return the table.

        Also remove the token, unless the sync is `exclusive`. Raises Fenced if another sync has taken over the
        overwrite.
        """
        table, _ = operations.commit(self.end_merge)
        return table

    def published(self) -> WriteMode:
        """Return the write mode in which this sync adds more rows to the content that it has published."""
        assert self._token is not None
        token = self._token if self._exclusive else None
        if self._definition is not None:
            return AppendDedup(self._table, self._stream, self._definition, token, self._token.sync)
        return Append(self._table, self._stream, token, self._token.sync)

    def end_merge(self, table: Table, transaction: Transaction) -> None:
        """Publish the branch in the same commit as the merge of its rows. Raises Fenced in the same cases as `publish`.

        A merged branch must not stay unpublished, because a merge removes the rows that mark keys as deleted. If a
        later append adopted such a branch, the rows on main with the deleted keys would stay.
        """
        self.require(table.metadata)
        with ManageSnapshots(transaction) as snapshots:
            # Read the head from the transaction, because a merge in this commit has just moved it.
            head = transaction.table_metadata.refs[self._branch].snapshot_id
            snapshots.set_current_snapshot(head).remove_branch(self._branch)
        # Remove the pending rows of earlier syncs, because they belong to the former content.
        remove_branches([PENDING_BRANCH], transaction)
        set_property(PENDING_BY, None, transaction)
        if self._definition is None:
            set_property(UNIQUE_BY, None, transaction)
        else:
            self._definition.write_to(UNIQUE_BY, transaction)
        # All rows on main are of this generation from here on.
        set_lowest_generation(self._stream.generation, transaction)
        set_overwrites(Overwrites.load(transaction.table_metadata.properties).published(), transaction)
        assert self._token is not None
        set_property(PUBLISHED_BY_PROPERTY, self._token.sync, transaction)
        if not self._exclusive:
            set_property(TOKEN_PROPERTY, None, transaction)


# --- the mode of a sync -----------------------------------------------------------------------------------------------


def write_mode(
    table: TableName,
    stream: Stream,
    sync: str,
    metadata: TableMetadata,
    definition: Definition | None,
    *,
    exclusive: bool,
) -> WriteMode:
    """Return the write mode for the stream in the sync with the ID `sync`.

    `definition` contains the columns for deduplication, or is None without deduplication. With `exclusive`, no other
    sync may write to the table at the same time. Raises TableConflict if the table does not accept rows of the stream's
    generation.
    """
    properties = metadata.properties
    token = FencingToken.after(properties, sync)
    overwrite = Overwrite(table, stream, token, definition, exclusive=exclusive)
    lowest, pending = lowest_generation(metadata), overwrite.is_pending(metadata)
    # The caller's commit requires that this metadata is still current. After a conflict, the caller decides again.
    if Overwrites.load(properties).overwritten_by(stream, table, lowest, pending=pending):
        return overwrite
    continues = stream.overwrites_table and not stream.has_constant_ids
    publisher = properties.get(PUBLISHED_BY_PROPERTY, "") if continues else None
    if definition is not None:
        return AppendDedup(table, stream, definition, token if exclusive else None, publisher)
    return Append(table, stream, token if exclusive else None, publisher)
