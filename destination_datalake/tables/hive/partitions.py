"""Registers the partitions of a Hive table in the Glue Data Catalog."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import msgspec
from botocore.exceptions import ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address, retry_until_done
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.glue import describe_type
from destination_datalake.schema.types import Field
from destination_datalake.tables.glue.glue_table import (
    GlueTable,
    TableInput,
    add_missing_columns,
    column_types,
    described,
    set_column_types,
    table_location,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.scheme import PartitionScheme, has_registered_partitions
from destination_datalake.tables.table import TableBusy, json_property, table_conflict

if TYPE_CHECKING:
    from destination_datalake.tables.table import TableName


# --- Calls ------------------------------------------------------------------------------------------------------------
# Glue requests about the partitions of a table, in batches of the maximum size.
#
# The limits are documented at https://docs.aws.amazon.com/glue/latest/webapi/API_BatchCreatePartition.html and on the
# pages of the other calls. A batch is not atomic: the response lists the partitions that failed.

_MAX_READ, _MAX_CREATED, _MAX_UPDATED, _MAX_DELETED = 1000, 100, 100, 25
"""Maximum numbers of partitions in one request to read, create, update and delete them."""

_MAX_COLUMNS = 50_000
"""Maximum number of columns in one request, summed over its partitions.

A request with this number of columns has a few megabytes. AWS documents no limit.
"""

_CONCURRENT_CALLS = 4

_EXISTS, _MISSING = "AlreadyExistsException", "EntityNotFoundException"

_TRANSIENT = frozenset(
    {
        "ConcurrentModificationException",
        "InternalServiceException",
        "InternalFailure",
        "OperationTimeoutException",
        "ThrottlingException",
    }
)
"""Error codes of single partitions for which a retry may succeed. Botocore retries only whole requests."""

Values = tuple[str, ...]
"""A partition's values as strings, one per partition key of the table."""

Entry = dict[str, Any]
"""A registered partition in Glue's format (Glue API: PartitionInput)."""

# The keys that an update accepts. GetPartitions returns more keys (Glue API: Partition), and updates reject them.
_ENTRY_KEYS = ("Values", "LastAccessTime", "StorageDescriptor", "Parameters", "LastAnalyzedTime")

_Member = TypeVar("_Member")


def values_of(entry: Mapping[str, Any]) -> Values:
    """Return a registered partition's values as strings, in the order of the table's partition keys."""
    return tuple(entry["Values"])


@dataclass(frozen=True, slots=True)
class RegisteredPartitions:
    """Reads, creates, updates and deletes the registered partitions of a Glue table.

    All methods raise errors from Glue, even if only one partition of a batch fails.
    """

    name: TableName
    access: AwsAccess

    def get(self, wanted: Collection[Values]) -> dict[Values, Entry]:
        """Return the registered partitions among `wanted`, by their values."""
        glue: Any = self.access.client("glue")
        entries = dict[Values, Entry]()
        remaining = list(wanted)

        def attempt() -> bool:
            nonlocal remaining
            batches, remaining = list(in_batches(remaining, _MAX_READ)), []
            for batch in batches:
                answer = glue.batch_get_partition(
                    **self._table, PartitionsToGet=[{"Values": list(values)} for values in batch]
                )
                partitions = answer.get("Partitions", ())
                entries.update((values_of(partition), _as_entry(partition)) for partition in partitions)
                # Glue need not process all keys of a request (Glue API: BatchGetPartition, UnprocessedKeys).
                remaining += [values_of(key) for key in answer.get("UnprocessedKeys", ())]
            return not remaining

        if not retry_until_done(attempt):
            raise _error("BatchGetPartition", remaining[0], {"ErrorCode": "ThrottlingException"})
        return entries

    def entries(self, *, with_columns: bool) -> Iterator[Entry]:
        """Yield all registered partitions. If `with_columns` is False, Glue's responses are much smaller."""
        pages: Any = self.access.client("glue").get_paginator("get_partitions")
        for page in pages.paginate(**self._table, ExcludeColumnSchema=not with_columns):
            yield from map(_as_entry, page["Partitions"])

    def create(self, entries: Sequence[Entry]) -> list[Values]:
        """Register new partitions. Return the values of the partitions that already existed, which stay unchanged."""
        glue: Any = self.access.client("glue")
        return self._in_batches(
            "BatchCreatePartition",
            entries,
            _limit(entries, _MAX_CREATED),
            lambda batch: glue.batch_create_partition(**self._table, PartitionInputList=batch),
            _EXISTS,
        )

    def update(self, entries: Sequence[Entry]) -> list[Values]:
        """Replace registered partitions. Return the values of the partitions that do not exist."""
        glue: Any = self.access.client("glue")
        return self._in_batches(
            "BatchUpdatePartition",
            entries,
            _limit(entries, _MAX_UPDATED),
            lambda batch: glue.batch_update_partition(
                **self._table,
                Entries=[{"PartitionValueList": entry["Values"], "PartitionInput": entry} for entry in batch],
            ),
            _MISSING,
        )

    def delete(self, partitions: Sequence[Values]) -> None:
        """Remove partitions from the catalog, but keep their files. Ignore missing partitions."""
        glue: Any = self.access.client("glue")
        self._in_batches(
            "BatchDeletePartition",
            [{"Values": list(values)} for values in partitions],
            _MAX_DELETED,
            lambda batch: glue.batch_delete_partition(**self._table, PartitionsToDelete=batch),
            _MISSING,
        )

    @property
    def _table(self) -> dict[str, str]:
        return {"DatabaseName": self.name.database, "TableName": self.name.table}

    def _in_batches(
        self,
        operation: str,
        entries: Sequence[Entry],
        limit: int,
        call: Callable[[Sequence[Entry]], Mapping[str, Any]],
        expected: str,
    ) -> list[Values]:
        """Send the entries in batches. Return the values of the partitions that failed with the error code `expected`.

        If single partitions fail with transient errors, retry them. Raises ClientError for any other error code.
        """

        def send(batch: Sequence[Entry]) -> list[Values]:
            remaining, failed = list(batch), list[Values]()
            error: ClientError | None = None

            def attempt() -> bool:
                nonlocal error, remaining
                errors = call(remaining).get("Errors", ())
                # The response lists only failures. All other partitions of the batch have been changed.
                details = {_failed_values(failure): failure.get("ErrorDetail", {}) for failure in errors}
                retried = []
                for entry in remaining:
                    values = values_of(entry)
                    detail = details.get(values)
                    if detail is None:
                        continue
                    if detail.get("ErrorCode") == expected:
                        # The expected error is a result for the caller: the partition exists already, or does not
                        # exist.
                        failed.append(values)
                        continue
                    error = _error(operation, values, detail)
                    if detail.get("ErrorCode") not in _TRANSIENT:
                        raise error
                    retried.append(entry)
                remaining = retried
                return not remaining

            if not retry_until_done(attempt):
                assert error is not None
                raise error
            return failed

        batches = list(in_batches(entries, limit))
        if len(batches) == 1:
            return send(batches[0])
        with ThreadPoolExecutor(_CONCURRENT_CALLS, "partitions") as pool:
            return list(chain.from_iterable(pool.map(send, batches)))


def in_batches(members: Iterable[_Member], limit: int) -> Iterator[list[_Member]]:
    """Yield the members in lists of at most `limit`."""
    iterator = iter(members)
    while batch := list(islice(iterator, limit)):
        yield batch


def _as_entry(partition: Mapping[str, Any]) -> Entry:
    """Return a partition from Glue's response with only the keys that an update accepts."""
    return {key: partition[key] for key in _ENTRY_KEYS if key in partition}


def _limit(entries: Sequence[Entry], limit: int) -> int:
    columns = max((len(entry["StorageDescriptor"].get("Columns", ())) for entry in entries), default=0)
    # The added 1 prevents a division by zero, and accounts for a partition's other members.
    return max(1, min(limit, _MAX_COLUMNS // (columns + 1)))


def _failed_values(error: Mapping[str, Any]) -> Values:
    # BatchUpdatePartition calls this member PartitionValueList. The other requests call it PartitionValues.
    values: Iterable[str] = error.get("PartitionValues") or error.get("PartitionValueList") or ()
    return tuple(values)


def _error(operation: str, values: Values, detail: Mapping[str, str]) -> ClientError:
    # Remove the partition's values from the message, because they may come from records.
    message = detail.get("ErrorMessage", "")
    for value in filter(None, values):
        message = message.replace(value, "…")
    return ClientError({"Error": {"Code": detail.get("ErrorCode", "Unknown"), "Message": message}}, operation)


# --- Index ------------------------------------------------------------------------------------------------------------
# Registers the partitions of a Hive table, and keeps them consistent with the table's content (see `content.py`).
#
# Each partition in Glue has its own storage descriptor: engines read the partition's files with the types in that
# descriptor. So each partition must have a location inside the content's folder, and the columns of the content.
#
# A sync changes the table by compare-and-set, and then the partitions by separate, unconditional requests. The
# compare-and-set therefore marks the partitions as stale. The next sync that reads this mark updates the partitions,
# even if the sync that changed the table was killed. A sync that has lost the fencing token also marks and updates the
# partitions, because its last requests may have arrived after those of its successor. If there is no mark, a sync only
# creates partitions, so that a late request cannot move a partition back.


_logger = logging.getLogger(__name__)

_INDEX_PROPERTY = "airbyte.partition-index"

_MAX_PARTITIONS_IN_MEMORY = 1000
"""Maximum number of partitions in memory. Each partition's description contains all columns of the table."""


class StalePartitions(msgspec.Struct, frozen=True, rename={"former_folders": "left"}):
    """A mark in a table's parameters, which records that the registered partitions do not match the content yet.

    Each mark has a new `id`. `former_folders` contains the S3 URIs of the folders that held the content before. If
    `replaced` is True, the sync that reads the mark must register all partitions of the new content, and delete the
    registered partitions in other folders.
    """

    id: str = ""
    former_folders: tuple[str, ...] = ()
    replaced: bool = False

    @classmethod
    def load(cls, table_input: TableInput) -> StalePartitions | None:
        """Return the mark in a table's parameters. Return None if the partitions are up to date or not registered.

        Raises InvalidProperty.
        """
        saved = json_property(table_input["Parameters"], _INDEX_PROPERTY, _SAVED_INDEX, described(table_input))
        return saved.behind if saved is not None and has_registered_partitions(table_input) else None


class _SavedIndex(msgspec.Struct, frozen=True):
    behind: StalePartitions | None = None


_SAVED_INDEX = msgspec.json.Decoder(_SavedIndex)


def mark_partitions_stale(table_input: TableInput, *, former_folder: str | None = None, replaced: bool = False) -> None:
    """Mark the partitions of a table as stale. Do nothing if the table does not register partitions.

    The new mark includes the former folders of an earlier mark.
    """
    if not has_registered_partitions(table_input):
        return
    earlier = StalePartitions.load(table_input) or StalePartitions()
    folders = dict.fromkeys((*earlier.former_folders, *([former_folder] if former_folder is not None else [])))
    # A new ID for each mark: a sync that has updated the partitions for an earlier mark must not remove a later one.
    mark = {"id": uuid4().hex, "left": list(folders), "replaced": earlier.replaced or replaced}
    table_input["Parameters"][_INDEX_PROPERTY] = json.dumps({"behind": mark})


def mark_up_to_date(table_input: TableInput, updated: StalePartitions) -> None:
    """Remove the mark `updated` from a table. Do nothing if a sync has since marked the partitions as stale again."""
    if StalePartitions.load(table_input) == updated:
        del table_input["Parameters"][_INDEX_PROPERTY]


@dataclass(slots=True)
class PartitionIndex:
    """Registers the partitions of one table for a sync of `stream`. Not thread-safe.

    `register` does nothing if the table uses only partition projection.
    """

    glue_table: GlueTable
    access: AwsAccess
    folders: Folders
    stream: StreamId
    scheme: PartitionScheme | None
    _registered_values: set[Values] = field(default_factory=set)

    def register(self, table_input: TableInput, partition_folders: Iterable[str]) -> bool:
        """Register the partitions of the published content that have these folders.

        Call this method before files become visible in the partitions. It skips partitions that this object has already
        registered, and does not change existing partitions. Returns False if some existing partitions are stale;
        `update_stale` updates them. Raises TableConflict if another program has registered one of the partitions at a
        different location.
        """
        if not has_registered_partitions(table_input):
            return True
        stale, are_up_to_date = StalePartitions.load(table_input) or StalePartitions(), True
        content = ContentFolders(table_location(table_input), stale.former_folders)
        desired = self._locations(content.folder, partition_folders)
        # A partition that this object has registered before is not read again, which saves a request per batch.
        unknown = {values: location for values, location in desired.items() if values not in self._registered_values}
        for batch in in_batches(unknown.items(), _MAX_PARTITIONS_IN_MEMORY):
            are_up_to_date &= self._create(dict(batch), table_input, content)
        self._registered_values |= unknown.keys()
        return are_up_to_date

    def register_all(self, table_input: TableInput) -> None:
        """Register every partition of the published content that contains files.

        Keep existing partitions as they are.
        """
        for batch in in_batches(self._present(table_location(table_input)).items(), _MAX_PARTITIONS_IN_MEMORY):
            self._registered.create([_created(values, location, table_input) for values, location in batch])

    def has_partitions_outside(self, table_input: TableInput, content: str) -> bool:
        """Return whether any registered partition is outside the folder `content`.

        Also return True if the table does not register partitions.
        """
        folder = ContentFolders(content)
        return not has_registered_partitions(table_input) or any(
            folder.relative(location) is None for location in self.locations(table_input)
        )

    def project(self, table_input: TableInput, partition_folders: Iterable[str]) -> None:
        """Add partitions of the published content to the table's partition projection, if it has one."""
        if self.scheme is not None:
            values = self._locations("", partition_folders).keys()
            self.scheme.project(table_input, values, reset=False)

    def reset_projection(self, table_input: TableInput) -> None:
        """Set the table's partition projection, if it has one, to exactly the partitions of the published content."""
        if self.scheme is not None and self.scheme.catalog != "register":
            content = table_location(table_input)
            self.scheme.project(table_input, self._present(content).keys(), reset=True)

    def update_stale(self, table_input: TableInput, stale: StalePartitions) -> None:
        """Point stale partitions to the content's folder and update their columns.

        If the content was replaced, also register the partitions of the new content, and delete the registered
        partitions outside its folder. The caller must call `mark_up_to_date` afterwards.
        """
        folders = ContentFolders(table_location(table_input), stale.former_folders)
        missing = self._present(folders.folder) if stale.replaced else {}
        replaced, changed = dict[Values, str | None](), 0
        for page in in_batches(self._registered.entries(with_columns=True), _MAX_PARTITIONS_IN_MEMORY):
            updates = []
            for entry in page:
                # A partition that exists is changed rather than created, so remove it from the partitions to create.
                new, location = missing.pop(values_of(entry), None), folders.current_location(location_of(entry))
                # This partition belongs to the replaced content. `new` is its location in the new content, or None if
                # the new content has no such partition.
                if stale.replaced and folders.relative(location_of(entry)) is None:
                    replaced[values_of(entry)] = new
                elif location is not None and (updated := _updated(entry, location, table_input)) != entry:
                    updates.append(updated)
            self._registered.update(updates)
            changed += len(updates)
        # Delete partitions last: a reader may briefly see a moved row twice, but never misses a row.
        for batch in in_batches(missing.items(), _MAX_PARTITIONS_IN_MEMORY):
            self._registered.create([_created(values, location, table_input) for values, location in batch])
        replacements = {values: location for values, location in replaced.items() if location is not None}
        for batch in in_batches(replacements.items(), _MAX_PARTITIONS_IN_MEMORY):
            entries = {values: _created(values, location, table_input) for values, location in batch}
            # Create the partitions that another engine has dropped since the listing.
            self._registered.create([entries[values] for values in self._registered.update([*entries.values()])])
        self._registered.delete([values for values in replaced if values not in replacements])
        if missing or replacements or changed:
            registered, name = len(missing) + len(replacements), self.glue_table.name
            _logger.info("Table %s: registered %d partitions and changed %d.", name, registered, changed)

    def warn_of_retyped(self, table_input: TableInput, named: Sequence[Field], written: Sequence[Field]) -> None:
        """Log a warning if partition keys are null in new rows because the type of their source column has changed.

        Also log a warning if registered partitions have values that are invalid for the type of their key. Earlier
        versions of the connector created such partitions. They may prevent engines from reading any part of the table.
        """
        keys = self.scheme.retyped(named, written) if self.scheme is not None else []
        if self.scheme is None or not keys:
            return
        _logger.warning(
            "Table %s: new rows are written to the null partition of partition key %s, because the types of the "
            "stream have changed. The columns contain all values. To partition new rows by their values, set another "
            "table_prefix and refresh the stream.",
            self.glue_table.name,
            ", ".join(f"{key.name} ({describe_type(key.type)})" for key in keys),
        )
        if not has_registered_partitions(table_input):
            return
        if invalid := self.scheme.count_invalid(map(values_of, self._registered.entries(with_columns=False))):
            _logger.warning(
                "Table %s: %d partitions have values that are invalid for the types of their partition keys. Queries "
                "of the whole table may fail in Athena, Trino and Spark. Refresh the stream with an overwrite to "
                "replace all partitions, or move the files of these partitions to the null partition as described in "
                "docs/hive/partitions.md.",
                self.glue_table.name,
                invalid,
            )

    def leave_former_folders(self, table_input: TableInput) -> None:
        """Point partitions that are registered in former folders of the content to its present folder.

        Call this method before deleting former folders.
        """
        if has_registered_partitions(table_input):
            self.update_stale(table_input, StalePartitions.load(table_input) or StalePartitions())

    def locations(self, table_input: TableInput) -> Iterator[str]:
        """Yield the locations of all registered partitions, including those that other writers registered."""
        if has_registered_partitions(table_input):
            yield from map(location_of, self._registered.entries(with_columns=False))

    @property
    def _registered(self) -> RegisteredPartitions:
        return RegisteredPartitions(self.glue_table.name, self.access)

    def _create(self, desired: Mapping[Values, str], table_input: TableInput, folders: ContentFolders) -> bool:
        """Create the partitions in `desired` that are not registered. Return whether the existing ones are up to date.

        Leave existing partitions unchanged. Raises TableConflict if an existing partition is neither at the desired
        location nor in a former folder of the content. Raises TableBusy if other writers create and drop the partitions
        in every attempt.
        """
        are_up_to_date = True

        def attempt() -> bool:
            nonlocal are_up_to_date
            # Read first: BatchCreatePartition does not report where an existing partition is.
            present = self._registered.get(desired.keys())
            for values, entry in present.items():
                location, registered = desired[values], location_of(entry)
                # Files at another location would be invisible, because engines read only the registered location.
                if registered != location and folders.relative_to_former(registered) is None:
                    raise self._location_conflict(values, registered)
                are_up_to_date &= _updated(entry, location, table_input) == entry
            missing = desired.keys() - present.keys()
            # Glue reports partitions that another engine has just created. In that case, read all of them again.
            return not self._registered.create([_created(key, desired[key], table_input) for key in missing])

        if not retry_until_done(attempt):
            raise TableBusy(
                f"Cannot register partitions of table {self.glue_table.name}: another writer created and dropped them "
                "during each attempt. Run the sync again when no other writer changes them."
            )
        return are_up_to_date

    def _present(self, content: str) -> dict[Values, str]:
        """Return the values and locations of the partitions that contain files."""
        return self._locations(content, {name.rpartition("/")[0] for name in self.folders.files(content)})

    def _locations(self, content: str, partition_folders: Iterable[str]) -> dict[Values, str]:
        """Return the values and locations of the partitions with these folders. Skip folders with other names."""
        if self.scheme is None:
            return {}
        values_by_folder = {folder: self.scheme.folders.texts_of(folder) for folder in sorted(partition_folders)}
        return {values: f"{content}/{folder}" for folder, values in values_by_folder.items() if values is not None}

    def _location_conflict(self, values: Values, location: str) -> Exception:
        if self.scheme is not None and self.scheme.is_by_date:
            problem = f"its partition {'/'.join(values)} is registered at {location}, outside the table's location"
        else:
            # Values of keys that are not dates come from records and must not appear in messages.
            problem = "a partition for rows of the stream is registered at a location outside the table's location"
        remedy = "Move the partition's files and drop the partition from the catalog, or set another table_prefix"
        return table_conflict(self.stream, self.glue_table.name, f"{problem}. {remedy}")


# Compute partitions without requests.


def location_of(entry: Mapping[str, Any]) -> str:
    """Return a partition's location with the scheme `s3` and without a trailing slash.

    A location outside S3 is returned unchanged.
    """
    location: str = entry.get("StorageDescriptor", {}).get("Location", "")
    try:
        return str(S3Address.parse(location)).removesuffix("/")
    except ValueError:
        return location


@dataclass(frozen=True, slots=True)
class ContentFolders:
    """The present folder of a table's content and its former folders, as S3 URIs without a trailing slash."""

    folder: str
    former_folders: tuple[str, ...] = ()

    def relative(self, location: str) -> str | None:
        """Return `location` relative to the content's folder, or None if it is outside."""
        return _below(location, self.folder)

    def relative_to_former(self, location: str) -> str | None:
        """Return `location` relative to a former folder of the content, or None if it is outside all of them.

        Every folder that this connector created beside the content's folder also counts as a former folder.
        """
        former_folders, created = set(self.former_folders), Folders.created_folder_around(location)
        if created is not None and created.rpartition("/")[0] == self.folder.rpartition("/")[0]:
            former_folders.add(created)
        candidates = [_below(location, folder) for folder in former_folders - {self.folder}]
        return min((relative for relative in candidates if relative is not None), key=len, default=None)

    def current_location(self, location: str) -> str | None:
        """Return where a partition registered at `location` belongs in the content's folder.

        Return None if `location` is neither in the content's folder nor in a former folder.
        """
        relative = self.relative(location) or self.relative_to_former(location)
        return None if relative is None else f"{self.folder}/{relative}"


def _below(location: str, folder: str) -> str | None:
    return location[len(folder) + 1 :] or None if location.startswith(f"{folder}/") else None


def _created(values: Values, location: str, table_input: TableInput) -> Entry:
    """Return a new partition with the table's storage descriptor.

    Athena and awswrangler also create partitions with the table's storage descriptor.
    """
    storage = copy.deepcopy(table_input["StorageDescriptor"])
    storage["Location"] = f"{location}/"
    return {"Values": list(values), "StorageDescriptor": storage, "Parameters": {}}


def _updated(entry: Entry, location: str, table_input: TableInput) -> Entry:
    """Return a copy of a registered partition with this location, and with the table's columns and types."""
    updated = copy.deepcopy(entry)
    # Another program may have registered the partition without columns.
    updated["StorageDescriptor"].setdefault("Columns", [])
    add_missing_columns(updated, table_input)
    set_column_types(updated, column_types(table_input))
    # Keep the spelling of an equal location, such as the scheme s3a, so that the entry counts as unchanged.
    if location_of(entry) != location:
        updated["StorageDescriptor"]["Location"] = f"{location}/"
    return updated
