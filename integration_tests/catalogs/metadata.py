"""A commit: what its requirements compare, and the metadata that its updates lead to.

Most updates are applied by PyIceberg. What the reference implementation (`TableMetadata.Builder`, `UpdateRequirement`)
does otherwise, or refuses besides, is here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar, assert_never

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)

from integration_tests.catalogs.behaviour import Behaviour
from integration_tests.catalogs.refusal import Refused, bad_request

_CLOCK_SKEW_MS = 60_000


def require(requirement: TableRequirement, base: TableMetadata) -> None:
    """Raise Refused unless the table is as the requirement says (`TableRequirement`). Nothing else is compared."""
    expected: object
    actual: object
    match requirement:
        case AssertCreate():
            expected, actual = "no table", "one"
        case AssertTableUUID():
            expected, actual = requirement.uuid, base.table_uuid
        case AssertRefSnapshotId():
            ref = base.refs.get(requirement.ref)
            expected, actual = requirement.snapshot_id, ref.snapshot_id if ref is not None else None
        case AssertLastAssignedFieldId():
            expected, actual = requirement.last_assigned_field_id, base.last_column_id
        case AssertCurrentSchemaId():
            expected, actual = requirement.current_schema_id, base.current_schema_id
        case AssertLastAssignedPartitionId():
            expected, actual = requirement.last_assigned_partition_id, base.last_partition_id
        case AssertDefaultSpecId():
            expected, actual = requirement.default_spec_id, base.default_spec_id
        case AssertDefaultSortOrderId():
            expected, actual = requirement.default_sort_order_id, base.default_sort_order_id
        case _:
            assert_never(requirement)
    if expected != actual:
        ref_suffix = f" of {requirement.ref}" if isinstance(requirement, AssertRefSnapshotId) else ""
        message = f"Requirement failed: {requirement.type}{ref_suffix}: expected {expected}, found {actual}"
        raise Refused(409, "CommitFailedException", message)


def updated(base: TableMetadata, location: str, updates: Iterable[TableUpdate], ways: Behaviour) -> TableMetadata:
    """Return what a table becomes; the same metadata if nothing changes.

    `location` is that of the metadata file that the new one replaces, empty for a table that is being created.
    Raises Refused.
    """
    accepted = _Updates(base, ways, is_new=not location)
    for update in updates:
        accepted.add(update)
    try:
        metadata = update_table_metadata(
            base, tuple(accepted.updates), enforce_validation=not location, metadata_location=location or None
        )
    except (ValueError, ValidationError, StopIteration) as error:
        raise bad_request(str(error)) from error
    if metadata == base:
        return base
    return metadata.model_copy(
        update={
            # PyIceberg forgets the parents of snapshots that go, and keeps their partitions' statistics.
            "snapshots": [accepted.snapshots[snapshot.snapshot_id] for snapshot in metadata.snapshots],
            "partition_statistics": [
                statistics
                for statistics in metadata.partition_statistics
                if statistics.snapshot_id in accepted.snapshots
            ],
            "snapshot_log": _history(base, metadata),
        }
    )


def _history(base: TableMetadata, metadata: TableMetadata) -> Sequence[SnapshotLogEntry]:
    """Return the snapshots that were current after a commit, since the last of them that is gone."""
    before = {snapshot.snapshot_id for snapshot in base.snapshots}
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    entries: list[SnapshotLogEntry] = []
    for entry in [
        *base.snapshot_log,
        *(new_entry for new_entry in metadata.snapshot_log if new_entry not in base.snapshot_log),
    ]:
        if entry.snapshot_id in before or entry.snapshot_id == metadata.current_snapshot_id:
            entries = [*entries, entry] if entry.snapshot_id in present else []
    return entries


_T = TypeVar("_T", Schema, PartitionSpec, SortOrder)


class _Numbered(Generic[_T]):
    """What a table has of a kind, by id. The server gives ids, whatever the client says: an equal one keeps its own."""

    def __init__(self, known: Iterable[tuple[int, _T]]) -> None:
        self.known: dict[int, _T] = dict(known)
        self._added: set[int] = set()
        self._last: int | None = None

    def add(self, new: Callable[[int], _T], is_same: Callable[[_T], bool], first: int = 0) -> _T | None:
        """Return one with the id that it has from now on; nothing if it is there."""
        known_id = next((number for number, definition in self.known.items() if is_same(definition)), None)
        if known_id is not None:
            # One that was there before the commit is not what -1 stands for.
            self._last = known_id if known_id in self._added else None
            return None
        self._last = max([first - 1, *self.known]) + 1
        self._added.add(self._last)
        numbered = self.known[self._last] = new(self._last)
        return numbered

    def resolve(self, number: int) -> int:
        """Return an id that a client may use, which says -1 for the last that it has added. Raises Refused."""
        resolved = self._last if number == -1 else number
        if resolved is None or resolved not in self.known:
            raise bad_request(f"Cannot set {number}: it is unknown, or nothing has been added")
        return resolved


class _Updates:
    """The updates of a commit as PyIceberg is to apply them, in order."""

    def __init__(self, base: TableMetadata, ways: Behaviour, *, is_new: bool) -> None:
        self.updates: list[TableUpdate] = []
        self.snapshots = {snapshot.snapshot_id: snapshot for snapshot in base.snapshots}
        self._base = base
        self._ways = ways
        self._is_new = is_new
        self._schemas = _Numbered((schema.schema_id, schema) for schema in base.schemas)
        self._specs = _Numbered((spec.spec_id, spec) for spec in base.partition_specs)
        self._orders = _Numbered((order.order_id, order) for order in base.sort_orders)
        self._properties = set(base.properties)
        self._schema_id = base.current_schema_id

    def add(self, update: TableUpdate) -> None:
        """Take one more. Raises Refused if no table can have it after those before it."""
        translated = self._translated(update)
        if translated is not None:
            self.updates.append(translated)

    def _translated(self, update: TableUpdate) -> TableUpdate | None:
        match update:
            case AssignUUIDUpdate() if not self._is_new and update.uuid != self._base.table_uuid:
                raise bad_request("Cannot reassign uuid")
            case UpgradeFormatVersionUpdate() if update.format_version not in self._ways.format_versions:
                raise bad_request(f"Unsupported format version: {update.format_version}")
            case SetLocationUpdate() if self._ways.assigns_locations and update.location != self._base.location:
                raise bad_request("The location of a table is the server's to choose")
            case AddSchemaUpdate():
                schema = self._schema(update.schema_)
                return update.model_copy(update={"schema_": schema}) if schema is not None else None
            case SetCurrentSchemaUpdate():
                self._schema_id = self._schemas.resolve(update.schema_id)
                return update.model_copy(update={"schema_id": self._schema_id})
            case AddPartitionSpecUpdate():
                spec = self._spec(update.spec)
                return update.model_copy(update={"spec": spec}) if spec is not None else None
            case SetDefaultSpecUpdate():
                return update.model_copy(update={"spec_id": self._specs.resolve(update.spec_id)})
            case AddSortOrderUpdate():
                order = self._order(update.sort_order)
                return update.model_copy(update={"sort_order": order}) if order is not None else None
            case SetDefaultSortOrderUpdate():
                return update.model_copy(update={"sort_order_id": self._orders.resolve(update.sort_order_id)})
            case AddSnapshotUpdate():
                self._check(update.snapshot)
                self.snapshots[update.snapshot.snapshot_id] = update.snapshot
            case SetSnapshotRefUpdate() if update.ref_name == MAIN_BRANCH and update.type == SnapshotRefType.TAG:
                raise bad_request("main is a branch")
            case RemoveSnapshotsUpdate():
                # Unknown ones are no error, as below: PyIceberg fails.
                known = [
                    snapshot_id
                    for snapshot_id in update.snapshot_ids
                    if self.snapshots.pop(snapshot_id, None) is not None
                ]
                return update.model_copy(update={"snapshot_ids": known}) if known else None
            case SetPropertiesUpdate():
                self._properties.update(update.updates)
            case RemovePropertiesUpdate():
                removals = [name for name in update.removals if name in self._properties]
                self._properties.difference_update(removals)
                return RemovePropertiesUpdate(removals=removals)
            case SetStatisticsUpdate() if update.statistics.snapshot_id not in self.snapshots:
                raise bad_request(f"Statistics of an unknown snapshot: {update.statistics.snapshot_id}")
            case SetPartitionStatisticsUpdate() if update.partition_statistics.snapshot_id not in self.snapshots:
                raise bad_request(f"Statistics of an unknown snapshot: {update.partition_statistics.snapshot_id}")
        return update

    def _schema(self, sent: Schema) -> Schema | None:
        def new(number: int) -> Schema:
            return Schema(*sent.fields, schema_id=number, identifier_field_ids=sent.identifier_field_ids)

        return self._schemas.add(new, lambda schema: schema == sent)

    def _spec(self, sent: PartitionSpec) -> PartitionSpec | None:
        schema = self._schemas.known.get(self._schema_id)
        if schema is None:
            raise bad_request("A partition spec needs a schema")
        try:
            sent.check_compatible(schema)
        except ValidationError as error:
            raise bad_request(str(error)) from error
        return self._specs.add(lambda number: PartitionSpec(*sent.fields, spec_id=number), sent.compatible_with)

    def _order(self, sent: SortOrder) -> SortOrder | None:
        # 0 is the order of tables that have none (Iceberg spec: sort orders).
        return self._orders.add(
            lambda number: SortOrder(*sent.fields, order_id=number),
            lambda order: order.fields == sent.fields,
            first=0 if sent.is_unsorted else 1,
        )

    def _check(self, snapshot: Snapshot) -> None:
        """Refuse what PyIceberg does not look at, or refuses for good.

        The reference implementation asks neither for the schema nor for the parent, and looks at no time.
        """
        before = self._base.last_sequence_number if not isinstance(self._base, TableMetadataV1) else 0
        if snapshot.parent_snapshot_id is not None and (snapshot.sequence_number or 0) <= before:
            # Somebody else has committed, maybe to another branch: no requirement sees it, and a retry may do.
            message = (
                f"Validation failed, please retry: sequence number {snapshot.sequence_number} is not after {before}"
            )
            raise Refused(409, "CommitFailedException", message)
        if snapshot.schema_id is not None and snapshot.schema_id not in self._schemas.known:
            raise bad_request(f"Snapshot of an unknown schema: {snapshot.schema_id}")
        if snapshot.parent_snapshot_id is not None and snapshot.parent_snapshot_id not in self.snapshots:
            raise bad_request(f"Snapshot with an unknown parent: {snapshot.parent_snapshot_id}")
        if not self._is_new and snapshot.timestamp_ms < self._base.last_updated_ms - _CLOCK_SKEW_MS:
            raise bad_request(f"Snapshot from {snapshot.timestamp_ms}, before the table's last update")
