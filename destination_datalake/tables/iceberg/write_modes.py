"""How a sync writes to its table: what it takes over from earlier syncs, the branch it commits to, and publishing.

An overwrite is written to a branch of its own, and its writer holds the table's fencing token, until it is published.
Branch and token are created, taken over and removed together, in one metadata commit. Rows that are to be deduplicated
are committed to a branch too, and merged into the content from there.

The platform does not send acknowledged records again, so the rows of a pending overwrite are kept: a later sync of the
same generation continues its branch, and a sync that appends adopts its rows. An overwrite of another generation
removes the branch.
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
    forget_branches,
    generation_branches,
    history,
    keep_for_ever,
    remove_branches,
    summary_number,
)
from destination_datalake.tables.iceberg.commit import TableOperations, set_property
from destination_datalake.tables.iceberg.dedup.definition import (
    PENDING_BY,
    UNIQUE_BY,
    Definition,
    MergeScope,
    pending_scope,
    way_out,
)
from destination_datalake.tables.iceberg.snapshots.branch_files import (
    BranchFiles,
    has_row_level_deletes,
    live_manifests,
)
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.table import (
    LOWEST_GENERATION_PROPERTY,
    PUBLISHED_BY_PROPERTY,
    TableConflict,
    TableName,
    cannot_write,
    table_conflict,
)


def properties_of_new_table(stream: Stream) -> dict[str, str]:
    """Return the generation that a new table is created with; none if it is published only later, or unknown."""
    if stream.generation is None or stream.overwrites_table:
        return {}
    return {LOWEST_GENERATION_PROPERTY: str(stream.generation)}


def lowest_generation(metadata: TableMetadata) -> int | None:
    """Return the lowest generation of the table's rows; None if it is not known.

    What others have added has none. Nor has what they have replaced the table by, and it is not looked for: a sync that
    goes on with the generation of before must not overwrite it by the few rows that it sends.
    """
    lowest = _lowest(metadata.properties)
    for snapshot in history(MAIN_BRANCH, metadata):
        said = summary_number(snapshot, LOWEST_GENERATION_PROPERTY)
        if lowest is not None and said is not None:
            return min(lowest, said)
    return lowest


def says_lowest_generation(metadata: TableMetadata) -> dict[str, str]:
    """Return the property of a snapshot of main whose rows are none of lower generations than those of the table."""
    lowest = _lowest(metadata.properties)
    return {} if lowest is None else {LOWEST_GENERATION_PROPERTY: str(lowest)}


def lowest_generation_with(stream: Stream, adopted: Iterable[str], table: Table) -> int | None:
    """Return the lowest generation with the rows of a stream and of adopted branches; None if it is unknown.

    It is for rows of other writers.
    """
    existing = lowest_generation(table.metadata)
    added = [stream.generation, *(generation_of(branch) for branch in adopted)]
    if existing is None and (None in added or live_manifests(table.current_snapshot(), table.io)):
        return None
    return min(generation for generation in (existing, *added) if generation is not None)


def set_lowest_generation(generation: int | None, transaction: Transaction) -> None:
    """Set the property, or remove it if the generation is unknown."""
    set_property(LOWEST_GENERATION_PROPERTY, None if generation is None else str(generation), transaction)


def set_overwrites(overwrites: Overwrites, transaction: Transaction) -> None:
    """Set the property of the generations of overwrites, unless it is so already."""
    if overwrites != Overwrites.of(transaction.table_metadata.properties):
        transaction.set_properties({OVERWRITES_PROPERTY: str(overwrites)})


def _lowest(properties: Mapping[str, str]) -> int | None:
    lowest = properties.get(LOWEST_GENERATION_PROPERTY, "")
    return int(lowest) if lowest.isdecimal() else None


def generation_of(branch: str) -> int | None:
    """Return the generation of a pending overwrite by the name of its branch; None if it has none."""
    generation = branch.removeprefix(GENERATION_PREFIX)
    return int(generation) if generation.isdecimal() else None


# --- what the modes have in common ------------------------------------------------------------------------------------


_GENERATION = "airbyte.generation-id"
_SYNC = "airbyte.sync-id"


class WriteMode(ABC):
    """How one sync writes. Writes to one branch."""

    def __init__(self, table: TableName, stream: Stream, branch: str, token: FencingToken | None) -> None:
        self._table = table
        self._stream = stream
        self._branch = branch
        self._token = token

    @abstractmethod
    def begin(self, table: Table, transaction: Transaction) -> None:
        """Make the branch ready, and settle what earlier syncs left, unless there is a `leftover_merge`."""

    def require(self, metadata: TableMetadata) -> None:
        """Raise Fenced if this sync had a token, and another has it: without one, no sync can take the branch over."""
        if self._token is not None:
            self._token.require(metadata.properties, self._table)

    def publish(self, operations: TableOperations) -> Table | None:  # noqa: ARG002
        """Make the branch's rows the table's content; return the table then, None if they were that already."""
        return None

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
        self._take_token(transaction)

    def _take_token(self, transaction: Transaction) -> None:
        """Take the fencing token or, as a sync that needs none, take it from a writer that does."""
        set_property(TOKEN_PROPERTY, str(self._token) if self._token is not None else None, transaction)

    def _adopt(self, branches: Sequence[str], table: Table, transaction: Transaction) -> None:
        for branch in branches:
            if has_row_level_deletes(table.metadata.snapshot_by_name(branch), table.io):
                problem = (
                    f"its branch {branch}, which an unpublished overwrite has left, has rows deleted by delete files, "
                    "which cannot be adopted. Compact the branch (rewrite_data_files with delete-file-threshold 1), or "
                    "let the overwrite be finished by a sync of its generation, or give its rows up (ALTER TABLE ... "
                    f"DROP BRANCH {branch})."
                )
                raise TableConflict(cannot_write(self._stream.id, self._table, problem))
            if files := [each.entry for each in BranchFiles(metrics=None).of(table, branch)]:
                self.append_files(files, table, transaction, ADOPTED)
        forget_branches(branches, transaction)


# --- append -----------------------------------------------------------------------------------------------------------


class Append(WriteMode):
    """Writes to main: readers see each commit at once. Any number of syncs may append at the same time.

    Rows that wait for their deduplication are older than those of this sync, and merged first. With a token, no other
    may append.
    """

    def __init__(self, table: TableName, stream: Stream, token: FencingToken | None = None) -> None:
        super().__init__(table, stream, MAIN_BRANCH, token)
        self._leftover_merge: MergeScope | None = None

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Adopt the rows of pending overwrites; remove their branches and the fencing token of their writer."""
        self._leftover_merge = pending_scope(table.metadata)
        if self._leftover_merge is None:
            self._take_over(table, transaction)
        else:
            self._take_token(transaction)

    @property
    def leftover_merge(self) -> MergeScope | None:
        """What has to be merged before rows are added that are not to be deduplicated."""
        return self._leftover_merge

    def append_files(
        self, files: Iterable[IcebergFile], table: Table, transaction: Transaction, origin: Mapping[str, str]
    ) -> None:
        """Add the files to main, whose rows are not unique by a key any more."""
        super().append_files(files, table, transaction, origin)
        set_property(UNIQUE_BY, None, transaction)


# --- append and deduplicate -------------------------------------------------------------------------------------------


class AppendDedup(WriteMode):
    """Writes to the branch of rows that are not deduplicated yet.

    Any number of syncs may do so at the same time, unless they have a token.
    """

    def __init__(
        self, table: TableName, stream: Stream, definition: Definition, token: FencingToken | None = None
    ) -> None:
        super().__init__(table, stream, PENDING_BRANCH, token)
        self._definition = definition

    def begin(self, table: Table, transaction: Transaction) -> None:
        """Adopt the rows of pending overwrites; remove their branches and the fencing token of their writer.

        Raises TableConflict as `require`, and if rows are pending that do not have the key: in all of them it is null.
        """
        self._require_key(table.metadata)
        pending = pending_scope(table.metadata)
        if pending is not None and not self._definition.has_columns(_schema_of_pending(table.metadata)):
            raise self._conflict(pending.definition, "its pending rows came with", table.metadata)
        if pending is not None:
            # Nothing was merged by another key (`require`), and another cursor decides about them as about new rows.
            self._definition.write_to(PENDING_BY, transaction)
        self._take_over(table, transaction)

    def require(self, metadata: TableMetadata) -> None:
        """Raise TableConflict if the content is unique by another key, or Fenced."""
        super().require(metadata)
        self._require_key(metadata)

    def _require_key(self, metadata: TableMetadata) -> None:
        unique = Definition.of(UNIQUE_BY, metadata)
        if unique is not None and unique.key != self._definition.key:
            raise self._conflict(unique, "its rows are unique by", metadata)

    def _conflict(self, by: Definition, fact: str, metadata: TableMetadata) -> TableConflict:
        schema = metadata.schema()
        # A field whose type has changed may have a new column, under whose id the key is another one.
        where = "" if self._definition.has_columns(schema) else ", in a new column"
        problem = (
            f"{fact} the primary key ({by.key_names(schema)}), but the primary key of the stream is now "
            f"({', '.join(self._stream.primary_key)}){where}. {way_out(by, metadata)}"
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


def _schema_of_pending(metadata: TableMetadata) -> Schema:
    """Return the schema that the pending rows were committed with last."""
    head = metadata.snapshot_by_name(PENDING_BRANCH)
    found = metadata.schema_by_id(head.schema_id) if head is not None and head.schema_id is not None else None
    return found or metadata.schema()


# --- overwrite --------------------------------------------------------------------------------------------------------


class Overwrite(WriteMode):
    """Writes to a branch of its own, which publishing makes the table's content. Holds the table's fencing token.

    With a `definition` the branch is deduplicated before it is published. If it is `exclusive`, no other may write to
    the table afterwards either.
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
        """Take the fencing token; continue the branch of the same generation, or create it; remove all others."""
        self._take_token(transaction)
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
        super().require(metadata)
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

    def publish(self, operations: TableOperations) -> Table:
        """Make the branch's head the current snapshot of main; remove branch and token. Raises Fenced."""
        table, _ = operations.commit(self.end_merge)
        return table

    def published(self) -> WriteMode:
        """Return how to append to the content."""
        token = self._token if self._exclusive else None
        if self._definition is not None:
            return AppendDedup(self._table, self._stream, self._definition, token)
        return Append(self._table, self._stream, token)

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
        set_property(PENDING_BY, None, transaction)
        if self._definition is None:
            set_property(UNIQUE_BY, None, transaction)
        else:
            self._definition.write_to(UNIQUE_BY, transaction)
        set_lowest_generation(self._stream.generation, transaction)
        set_overwrites(Overwrites.of(transaction.table_metadata.properties).published(), transaction)
        assert self._token is not None
        set_property(PUBLISHED_BY_PROPERTY, self._token.sync, transaction)
        if not self._exclusive:
            set_property(TOKEN_PROPERTY, None, transaction)


# --- which mode a sync has --------------------------------------------------------------------------------------------


def write_mode(
    table: TableName,
    stream: Stream,
    sync: str,
    metadata: TableMetadata,
    definition: Definition | None,
    *,
    exclusive: bool,
) -> WriteMode:
    """Return how the stream writes to a table. `sync` identifies this sync uniquely.

    `definition` is by what its rows are deduplicated; None if they are not. With `exclusive`, no other may write at the
    same time. Raises TableConflict if its generation may
    not write to the table.
    """
    properties = metadata.properties
    token = FencingToken.after(properties, sync)
    overwrite = Overwrite(table, stream, token, definition, exclusive=exclusive)
    lowest, pending = lowest_generation(metadata), overwrite.is_pending(metadata)
    if Overwrites.of(properties).overwritten_by(stream, table, lowest, pending=pending):
        return overwrite
    if definition is not None:
        return AppendDedup(table, stream, definition, token if exclusive else None)
    return Append(table, stream, token if exclusive else None)
