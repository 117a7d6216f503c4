"""Commits changes to one Iceberg table, retries after conflicts, and applies permissions to new columns.

The catalog accepts a commit only if the table still has the metadata on which the commit was planned. This module
applies LF-Tags and grants to new columns before rows with values in these columns become visible.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from destination_datalake.aws.objects import Uncommitted, delete_uncommitted, retry_on
from destination_datalake.tables.fencing import TOKEN_PROPERTY
from destination_datalake.tables.iceberg.branches import NO_EXPIRY_MS
from destination_datalake.tables.iceberg.compatibility import UNREADABLE
from destination_datalake.tables.iceberg.file_io import background_writes
from destination_datalake.tables.iceberg.pyiceberg_internals import OpenTransaction, apply, with_updates
from destination_datalake.tables.iceberg.schema import column_types
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.table import (
    CommitStateUnknown,
    TableBusy,
    TableConflict,
    TablePosition,
    number_property,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_ATTEMPTS = 5

COMMENT = "comment"
"""Table property that engines show as the table's comment."""


class CommitStatus(Enum):
    """The outcome of a commit whose response was lost (Iceberg: BaseMetastoreTableOperations.CommitStatus)."""

    SUCCESS = auto()
    FAILURE = auto()
    UNKNOWN = auto()


INCOMPLETE_HISTORY = (
    "Since then, other writers have changed the table so often that its metadata does not show whether it contains "
    "the commit."
)
"""The reason for CommitStateUnknownException if the status of a commit is UNKNOWN."""


@dataclass(frozen=True, slots=True)
class Ungoverned:
    """The result of a `build` function if the table or new columns need LF-Tags and grants before rows are committed.

    `TableOperations.commit` then commits the schema, applies the tags and grants, and calls `build` again. `new`
    contains the names of the columns that are new to this sync.
    """

    new: frozenset[str]


def set_property(name: str, value: str | None, transaction: Transaction) -> None:
    """Set a table property, or remove it if `value` is None. Do nothing if it already has this value."""
    present = transaction.table_metadata.properties.get(name)
    if value is None and present is not None:
        transaction.remove_properties(name)
    elif value is not None and value != present:
        transaction.set_properties({name: value})


class TableOperations:
    """Loads, creates and changes one table through its catalog (compare Iceberg's `TableOperations`)."""

    def __init__(self, name: TableName, catalog: TableCatalog) -> None:
        self._name = name
        self._catalog = catalog
        self._governed_fields: frozenset[int] = frozenset()
        self.position = TablePosition("", 0)
        """The table's position after the last `commit`."""

    @property
    def access(self) -> AwsAccess:
        """The S3 access for reading and writing the table's files."""
        return self._catalog.access_of(self._name)

    def load(self) -> Table:
        """Load the table from the catalog.

        Raises NoSuchTableError, PyIceberg's errors if the table is not an Iceberg table, and TableConflict if PyIceberg
        does not support the table's metadata.
        """
        try:
            return self._catalog.pyiceberg().load_table(self._name)
        except ValidationError as error:
            problem = f"{UNREADABLE}, or choose another lakeformation_database_name."
            raise TableConflict(f"Cannot write to table {self._name}: {problem}") from error

    def create(
        self,
        schema: Schema,
        location: str | None,
        spec: PartitionSpec,
        order: SortOrder,
        properties: Mapping[str, str],
    ) -> Table:
        """Create the table. If another writer has just created it, load it instead.

        If `location` is None, the catalog assigns a location.
        """
        try:
            return self._catalog.pyiceberg().create_table(self._name, schema, location, spec, order, dict(properties))
        except TableAlreadyExistsError:
            return self.load()

    def commit(
        self, build: Callable[[Table, Transaction], _Result | Ungoverned], table: Table | None = None
    ) -> tuple[Table, _Result]:
        """Commit a transaction. Return the table after the commit, and the result of `build`.

        `build` adds changes to the transaction. This method does not commit a transaction without changes. If `build`
        returns Ungoverned, this method commits its changes, applies the permissions to the columns, and calls `build`
        again.

        After a conflict, this method loads the table and calls `build` again, because the earlier decisions of `build`
        may be outdated. Retries use exponential backoff and jitter. A caller that has just loaded the table can pass it
        as `table` to save a request.

        Raises TableBusy after the last attempt, and CommitStateUnknown if the commit may or may not have taken effect.
        """
        while True:
            table, result = self._commit(build, table)
            self.position = position_of(table)
            if not isinstance(result, Ungoverned):
                return table, result
            # Tags and grants apply to columns in the catalog. So the columns are committed first, without rows, and
            # governed before `build` adds the rows.
            self._govern(table.metadata, result.new)

    def ungoverned(self, metadata: TableMetadata) -> Ungoverned | None:
        """Return Ungoverned if columns need LF-Tags and grants before rows are committed, otherwise None."""
        # Compare field IDs: a column that was dropped and added again has a new ID, but no tags and grants.
        new = frozenset(field.name for field in metadata.schema().fields if field.field_id not in self._governed_fields)
        governed = self._catalog.governance.is_governed(*self._name, column_types(metadata), new, metadata.table_uuid)
        return None if governed else Ungoverned(new)

    @contextmanager
    def planning_on(self, table: Table) -> Iterator[None]:
        """Convert FileNotFoundError to CommitFailedException if the table has changed since it was loaded.

        The file may be missing because another writer has expired a snapshot and deleted the snapshot's manifests. The
        conversion makes callers treat the missing file as a conflict.
        """
        location = table.metadata_location
        try:
            yield
        except FileNotFoundError as error:
            if self.load().metadata_location == location:
                raise
            raise CommitFailedException(
                "Another writer has removed files of the snapshot on which this commit was planned"
            ) from error

    def with_latest(self, act: Callable[[Table], _Result]) -> _Result:
        """Load the table, call `act` with it, and return the result.

        Other writers may expire snapshots while `act` runs. If `act` therefore misses a file, load the table and call
        `act` again. Raises FileNotFoundError if the table has not changed, or after the last attempt.
        """
        for _ in range(_ATTEMPTS - 1):
            table = self.load()
            with suppress(CommitFailedException), self.planning_on(table):
                return act(table)
        return act(self.load())

    def delete_uncommitted(self, files: Iterable[Uncommitted]) -> None:
        """Delete files that the table does not reference. Only log failures."""
        with self.logging_leftovers():
            delete_uncommitted(files, self.access.client("s3"))

    @contextmanager
    def logging_leftovers(self) -> Iterator[None]:
        """Log and suppress every failure of the block. The block may only delete unused files."""
        try:
            yield
        except Exception:
            _logger.warning(
                "Cannot delete unused files of table %s. Run `maintain` to delete these files.",
                self._name,
                exc_info=True,
            )

    def _commit(self, build: Callable[[Table, Transaction], _Result], table: Table | None) -> tuple[Table, _Result]:
        def attempt() -> tuple[Table, _Result]:
            nonlocal table
            # Use the caller's table only once. After a conflict, it is out of date.
            base, table = table or self.load(), None
            # PyIceberg's own retries would commit the same files even after another writer has changed the schema.
            no_retries = {**base.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
            # The catalog applies only the updates to the metadata that it stores, so this property never reaches the
            # table.
            base.metadata = base.metadata.model_copy(update={"properties": no_retries})
            transaction = SharingTransaction(base)
            with background_writes(base).begun():
                with self.planning_on(base):
                    result = build(base, transaction)
                # After `build`, so that the requirements cover all updates. The manifests may still be uploading. The
                # catalogs wait for them before they commit, so no reader follows a commit to a missing file.
                fence(base, transaction, whole=self._catalog.compares_metadata)
                return transaction.commit_transaction(), result

        try:
            return retry_on(CommitFailedException, attempt)
        except CommitFailedException as error:
            raise TableBusy(
                f"Cannot commit to table {self._name}: other writers committed first at every attempt. The table is "
                "unchanged. Run the sync again when fewer writers commit to the table."
            ) from error
        except CommitStateUnknownException as error:
            raise CommitStateUnknown(
                f"Table {self._name}: the response to a commit was lost, and the connector cannot determine whether "
                f"the commit succeeded. {error} The files of the commit are kept. Run the sync again. The table may "
                "then contain rows of this commit twice."
            ) from error

    def _govern(self, metadata: TableMetadata, new: frozenset[str]) -> None:
        self._catalog.governance.govern_table(*self._name, column_types(metadata), new, metadata.table_uuid)
        # Set only after the permissions are applied. If that fails, the next commit applies them again.
        self._governed_fields = frozenset(field.field_id for field in metadata.schema().fields)


# --- metadata changes whose cost does not grow with the number of snapshots -------------------------------------------


# Catalogs write `00012-<uuid>.metadata.json`, and Hadoop tables contain `v12.metadata.json`.
_METADATA_FILE = re.compile(r"/v?([0-9]+)[-.][^/]*$")
"""Matches the number in a metadata file's name. It increases with each commit (Iceberg: `LocationProvider`)."""


def position_of(table: Table) -> TablePosition:
    """Return the table's UUID with the number of its metadata file.

    The number is 0 if the file's name contains none.
    """
    numbered = _METADATA_FILE.search(table.metadata_location)
    return TablePosition(str(table.metadata.table_uuid), int(numbered[1]) if numbered is not None else 0)


class SharingTransaction(OpenTransaction):
    """A transaction that applies each update only once.

    Its metadata shares unchanged objects with the table's metadata.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with all updates of the transaction so far."""
        base, updates = self.base, self.updates
        # PyIceberg replaces the tuple of updates when it adds one, so identity shows whether the cached result is
        # current.
        if self._applied is None or self._applied[0] is not base or self._applied[1] is not updates:
            self._applied = (base, updates, updated(base, updates))
        return self._applied[2]


def updated(
    base: TableMetadata, updates: tuple[TableUpdate, ...], metadata_location: str | None = None
) -> TableMetadata:
    """Apply updates like PyIceberg's `update_table_metadata`. The result shares unchanged parts with `base`.

    `metadata_location` is the location of `base`. If it is not None, the function appends it to the metadata log.
    """
    metadata = with_updates(base, tuple(_with_retention(base, updates)), metadata_location)
    # The number of snapshots does not show a removal, because the updates may add as many snapshots.
    if any(isinstance(update, RemoveSnapshotsUpdate) for update in updates):
        metadata = _without_gaps(base, metadata)
    # PyIceberg makes the same two checks. It then copies the whole metadata, which takes time for each snapshot.
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def _with_retention(base: TableMetadata, updates: tuple[TableUpdate, ...]) -> Iterator[TableUpdate]:
    """Yield the updates. A branch or tag that moves to another snapshot keeps its retention.

    PyIceberg would drop the retention that the owner of the branch or tag has set. Iceberg's own library keeps it.
    """
    # Follow the updates one by one, because one transaction can create, move and remove the same ref.
    refs: dict[str, SnapshotRef | SetSnapshotRefUpdate] = {**base.refs}
    for update in updates:
        moved = update
        match update:
            case SetSnapshotRefUpdate(min_snapshots_to_keep=None, max_snapshot_age_ms=None, max_ref_age_ms=None):
                if (before := refs.get(update.ref_name)) is not None:
                    retention = ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
                    moved = update.model_copy(update={name: getattr(before, name) for name in retention})
            case RemoveSnapshotRefUpdate():
                refs.pop(update.ref_name, None)
        if isinstance(moved, SetSnapshotRefUpdate):
            refs[moved.ref_name] = moved
        yield moved


def _without_gaps(base: TableMetadata, metadata: TableMetadata) -> TableMetadata:
    """Return the metadata without the entries of the snapshot log up to and including the last removed snapshot.

    PyIceberg removes only the log entries of removed snapshots, which leaves gaps in the log. A time-travel query could
    then return an older snapshot that a tag has kept, instead of the snapshot that was current at the requested time
    (Iceberg spec: snapshot-log).
    """
    remaining_ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    removed_entries = [
        number for number, entry in enumerate(base.snapshot_log) if entry.snapshot_id not in remaining_ids
    ]
    if not removed_entries:
        return metadata
    # The log of `metadata` contains the remaining entries of `base`, followed by `since` entries that this transaction
    # has added. `base_entries` counts those entries of `base` that follow the last gap. Keep both.
    base_entries = len(base.snapshot_log) - removed_entries[-1] - 1
    since = len(metadata.snapshot_log) - sum(entry.snapshot_id in remaining_ids for entry in base.snapshot_log)
    log = metadata.snapshot_log[len(metadata.snapshot_log) - base_entries - since :]
    return metadata.model_copy(update={"snapshot_log": log})


# --- the fence: every catalog accepts only one of two commits planned on the same state -------------------------------


FENCE_PROPERTY = "airbyte.fence"
"""Table property with the number of the last fence tag. It outlives the tag, so that no number is used twice."""

_PREFIX = "airbyte-fence-"
_NAME = re.compile(rf"{_PREFIX}([0-9]{{1,18}})")
_EXPIRES_AT_ONCE_MS = 1


def fence(table: Table, transaction: OpenTransaction, *, whole: bool) -> None:
    """Complete a transaction. The catalog then rejects all other transactions planned on the same state of the table.

    A commit can require that parts of the metadata are unchanged: the table's ID, the IDs of its schema, partition spec
    and sort order, and its branches and tags (Iceberg REST specification: TableRequirement). It cannot require the
    value of a property. It can require that a branch or tag is absent, but only by name.

    The table therefore has a fence tag with a number in its name, such as `airbyte-fence-6`. A commit that moves no
    branch replaces this tag by one with the next number, `airbyte-fence-7`. Every commit requires that no tag with the
    next number exists.

    If `whole` is True, the catalog compares the whole metadata, so most commits need no tag. Only a sync that takes the
    fencing token then sets a tag, to fence syncs that commit through catalogs of other kinds. A tag must refer to a
    snapshot, so a table without snapshots first gets an empty snapshot.

    While a sync holds the token, no engine expires the tag. Afterwards, the next engine that expires snapshots (Iceberg
    spec: max-ref-age-ms), or the next commit that moves a branch, removes the tag.
    """
    if not transaction.updates:
        return
    _replace_or_remove_tag(table, transaction, whole=whole)
    transaction.require(requirements(table.metadata, transaction.updates))


def _replace_or_remove_tag(table: Table, transaction: OpenTransaction, *, whole: bool) -> None:
    before, after = table.metadata, transaction.table_metadata
    token = after.properties.get(TOKEN_PROPERTY)
    taken = token is not None and token != before.properties.get(TOKEN_PROPERTY)
    if taken or not (whole or _will_conflict(before, after)):
        # The updates change nothing, so no other commit needs to fail.
        if not taken and after == before:
            return
        if MAIN_BRANCH not in after.refs:
            change_branch(Change([]), MAIN_BRANCH, table, transaction)
            after = transaction.table_metadata
        # `requirements` demands that the tag with this number is absent. So of two commits planned on `before`, only
        # one can set it.
        _replace_tag(_last_number(before) + 1, after, transaction, held=token is not None)
    elif token is None:
        # This commit conflicts with others without a tag, and no held token needs one.
        apply(transaction, tuple(_removal(after)))


def _will_conflict(before: TableMetadata, after: TableMetadata) -> bool:
    """Return whether the changes move a branch or create the branch main.

    The catalog then rejects other commits planned on `before` even without a fence tag, because every commit requires
    the present heads of all branches.
    """
    moved = (after.refs[name].snapshot_id != ref.snapshot_id for name, ref in before.refs.items() if name in after.refs)
    return any(moved) or (MAIN_BRANCH in after.refs and MAIN_BRANCH not in before.refs)


def _replace_tag(number: int, metadata: TableMetadata, transaction: OpenTransaction, *, held: bool) -> None:
    tag = {
        "ref-name": f"{_PREFIX}{number}",
        "type": SnapshotRefType.TAG,
        # Do not tag a snapshot of an overwrite's branch. The tag would keep that snapshot after its rows are adopted.
        "snapshot-id": metadata.refs[MAIN_BRANCH].snapshot_id,
        "max-ref-age-ms": NO_EXPIRY_MS if held else _EXPIRES_AT_ONCE_MS,
    }
    properties = SetPropertiesUpdate(updates={FENCE_PROPERTY: str(number)})
    apply(transaction, (*_removal(metadata), SetSnapshotRefUpdate.model_validate(tag), properties))


def _removal(metadata: TableMetadata) -> Iterator[TableUpdate]:
    for name, ref in metadata.refs.items():
        if is_fence(name, ref):
            yield RemoveSnapshotRefUpdate.model_validate({"ref-name": name})


def _last_number(metadata: TableMetadata) -> int:
    """Return the highest number of any fence tag so far. Branches with such names count as well.

    Raises InvalidProperty.
    """
    recorded = number_property(metadata.properties, FENCE_PROPERTY, f"the table at {metadata.location}")
    numbers = [int(match[1]) for name in metadata.refs if (match := _NAME.fullmatch(name))]
    return max([recorded or 0, *numbers])


def is_fence(name: str, ref: SnapshotRef) -> bool:
    """Return whether a ref is a fence tag, which `fence` sets to make concurrent commits conflict."""
    return ref.snapshot_ref_type == SnapshotRefType.TAG and _NAME.fullmatch(name) is not None


def is_unneeded_fence(name: str, ref: SnapshotRef) -> bool:
    """Return whether a ref is a fence tag that protects no held token.

    Such a tag may be removed, and does not keep its snapshot from expiry.
    """
    return is_fence(name, ref) and ref.max_ref_age_ms == _EXPIRES_AT_ONCE_MS


def requirements(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> tuple[TableRequirement, ...]:
    """Return all requirements that a commit can make for updates planned on `metadata`."""
    refs: dict[str, int | None] = {MAIN_BRANCH: None}
    # Each following line overrides the earlier ones: a ref that this commit creates must be absent, and a ref that
    # exists must still refer to the same snapshot.
    if metadata.refs:  # In a table without refs, PyIceberg can require the absence of main only, which is enough.
        refs[f"{_PREFIX}{_last_number(metadata) + 1}"] = None
        refs |= {update.ref_name: None for update in updates if isinstance(update, SetSnapshotRefUpdate)}
        refs |= {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    ids = [] if metadata.last_partition_id is None else [metadata.last_partition_id]  # Format version 1 may lack it.
    last_partition = [AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": id_}) for id_ in ids]
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        *last_partition,
        AssertDefaultSortOrderId.model_validate({"default-sort-order-id": metadata.default_sort_order_id}),
        *(AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": id_}) for name, id_ in refs.items()),
    )
