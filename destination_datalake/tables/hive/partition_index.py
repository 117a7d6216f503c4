"""The registered partitions of a table: an index derived from its content, kept up to date with it.

A partition of the Glue Data Catalog has a storage descriptor of its own, by which engines read its files: they must be
read with the types that they were written with. So each partition has a location inside the content's folder, and the
content's columns.

Partitions are changed by calls of their own, unconditionally, after the compare-and-set that changes the table. So this
change also says that the partitions are behind; a sync that reads it brings them up to date, whether or not the one
that changed the table was killed. A sync that finds itself fenced says so, too, and brings them up to date: its last
calls may have come after those of its successor, which may have ended. A table that does not say so only gets new
partitions: a late call can move none back.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.backoff import retry_until_done
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.glue import describe_type
from destination_datalake.schema.types import Field
from destination_datalake.tables.glue.glue_table import (
    GlueTable,
    TableInput,
    add_missing_columns,
    column_types,
    set_column_types,
    table_location,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.registration import Entry, RegisteredPartitions, Values, in_batches, values_of
from destination_datalake.tables.hive.scheme import PartitionScheme, has_registered_partitions
from destination_datalake.tables.table import TableBusy, table_conflict

_logger = logging.getLogger(__name__)

_BEHIND = "airbyte.partition-index"

_AT_ONCE = 1000
"""Partitions, each with all columns of the table, that are in memory at the same time."""


@dataclass(frozen=True, slots=True)
class Behind:
    """Partitions are behind the content. `id` is another one each time that this is said.

    `left` are the folders, S3 URIs, that the content has left. If it was `replaced`, all partitions of the new content
    must be registered, and those elsewhere deleted.
    """

    id: str = ""
    left: tuple[str, ...] = ()
    replaced: bool = False

    @classmethod
    def of(cls, table_input: TableInput) -> Self | None:
        """Return what a table's parameters say; None if its partitions are up to date, or if it registers none."""
        saved = json.loads(table_input["Parameters"].get(_BEHIND, "{}")).get("behind")
        if saved is None or not has_registered_partitions(table_input):
            return None
        return cls(saved["id"], tuple(saved["left"]), saved["replaced"])


def mark_behind(table_input: TableInput, *, left: str | None = None, replaced: bool = False) -> None:
    """Say that the partitions are behind, if the table registers any; also what made them so before."""
    if not has_registered_partitions(table_input):
        return
    before = Behind.of(table_input) or Behind()
    folders = dict.fromkeys((*before.left, *([left] if left is not None else [])))
    saved = {"id": uuid4().hex, "left": list(folders), "replaced": before.replaced or replaced}
    table_input["Parameters"][_BEHIND] = json.dumps({"behind": saved})


def mark_up_to_date(table_input: TableInput, followed: Behind) -> None:
    """Say that the partitions follow the content, unless it was said again that they do not."""
    if Behind.of(table_input) == followed:
        del table_input["Parameters"][_BEHIND]


@dataclass(slots=True)
class PartitionIndex:
    """Registers the partitions of one table for a sync of `stream`. Does nothing for a table that registers none.

    Not thread-safe.
    """

    glue_table: GlueTable
    access: AwsAccess
    folders: Folders
    stream: StreamId
    scheme: PartitionScheme | None
    _known: set[Values] = field(default_factory=set)

    def register(self, table_input: TableInput, partition_folders: Iterable[str]) -> bool:
        """Register partitions of the published content by their folders in it, unless they are known to be.

        Must be called before files become visible in them. False if present ones must follow the content first: only
        `follow` changes those, when the table says that they are behind. Raises TableConflict if somebody has
        registered one of them at another location.
        """
        if not has_registered_partitions(table_input):
            return True
        content, is_followed = table_location(table_input), True
        desired = self._locations(content, partition_folders)
        unknown = {values: location for values, location in desired.items() if values not in self._known}
        for batch in in_batches(unknown.items(), _AT_ONCE):
            is_followed &= self._create(dict(batch), table_input, ContentFolders(content))
        self._known |= unknown.keys()
        return is_followed

    def register_all(self, table_input: TableInput) -> None:
        """Register all partitions of the published content that have files, unless their values have one."""
        for batch in in_batches(self._present(table_location(table_input)).items(), _AT_ONCE):
            self._registered.create([_created(values, location, table_input) for values, location in batch])

    def has_elsewhere(self, table_input: TableInput, content: str) -> bool:
        """Whether a registered partition is not in the folder `content`; also if the table registers none."""
        inside = ContentFolders(content).inside
        return not has_registered_partitions(table_input) or any(
            inside(location) is None for location in self.locations(table_input)
        )

    def project(self, table_input: TableInput, partition_folders: Iterable[str]) -> None:
        """Let Athena look for more partitions of the published content, if the table has a projection."""
        if self.scheme is not None:
            values = self._locations("", partition_folders).keys()
            self.scheme.project(table_input, values, anew=False)

    def project_anew(self, table_input: TableInput) -> None:
        """Let Athena look for the partitions of the published content and no others, if the table has a projection."""
        if self.scheme is not None and self.scheme.catalog != "register":
            content = table_location(table_input)
            self.scheme.project(table_input, self._present(content).keys(), anew=True)

    def follow(self, table_input: TableInput, behind: Behind) -> None:
        """Bring the registered partitions up to date with a table that says that they are behind.

        The caller then calls `mark_up_to_date`.
        """
        folders = ContentFolders(table_location(table_input), behind.left)
        missing = self._present(folders.folder) if behind.replaced else {}
        replaced, changed = dict[Values, str | None](), 0
        for page in in_batches(self._registered.all(with_columns=True), _AT_ONCE):
            updates = []
            for entry in page:
                new, location = missing.pop(values_of(entry), None), folders.location_now(location_of(entry))
                if behind.replaced and folders.inside(location_of(entry)) is None:
                    replaced[values_of(entry)] = new
                elif location is not None and (updated := _updated(entry, location, table_input)) != entry:
                    updates.append(updated)
            self._registered.update(updates)
            changed += len(updates)
        # Deleted last: a row whose partition is another one now is seen twice for a moment, not missed.
        for batch in in_batches(missing.items(), _AT_ONCE):
            self._registered.create([_created(values, location, table_input) for values, location in batch])
        kept = {values: location for values, location in replaced.items() if location is not None}
        for batch in in_batches(kept.items(), _AT_ONCE):
            entries = {values: _created(values, location, table_input) for values, location in batch}
            # Another engine may have dropped one since.
            self._registered.create([entries[values] for values in self._registered.update([*entries.values()])])
        self._registered.delete([values for values in replaced if values not in kept])
        if missing or kept or changed:
            registered, name = len(missing) + len(kept), self.glue_table.name
            _logger.info("Table %s: %d partitions registered, %d changed.", name, registered, changed)

    def warn_of_retyped(self, table_input: TableInput, named: Sequence[Field], written: Sequence[Field]) -> None:
        """Log the keys that new rows have no value of, as their sources have other types by now, and what that hides.

        Partitions with such values, which earlier versions registered, make engines fail on the whole table.
        """
        keys = self.scheme.retyped(named, written) if self.scheme is not None else []
        if self.scheme is None or not keys:
            return
        _logger.warning(
            "Table %s: new rows are in the null partition of %s, because the stream has other types now. Their columns "
            "have all values. To partition them, set another table_prefix and refresh the stream.",
            self.glue_table.name,
            ", ".join(f"{key.name} ({describe_type(key.type)})" for key in keys),
        )
        if not has_registered_partitions(table_input):
            return
        if misfits := self.scheme.misfits(values_of(each) for each in self._registered.all(with_columns=False)):
            _logger.warning(
                "Table %s: %d of its partitions have a value that is none of its key's type, and Athena, Trino and "
                "Spark may fail on the whole table. Refresh the stream with an overwrite, which replaces all "
                "partitions, or move their files to the null partition, as docs/hive/partitions.md says.",
                self.glue_table.name,
                misfits,
            )

    def leave_former_folders(self, table_input: TableInput) -> None:
        """Let no partition refer to a folder that the content has left: such folders are about to be deleted."""
        if has_registered_partitions(table_input):
            self.follow(table_input, Behind.of(table_input) or Behind())

    def locations(self, table_input: TableInput) -> Iterator[str]:
        """Yield where the registered partitions are now, also those of other writers."""
        if has_registered_partitions(table_input):
            yield from map(location_of, self._registered.all(with_columns=False))

    @property
    def _registered(self) -> RegisteredPartitions:
        return RegisteredPartitions(self.glue_table.name, self.access)

    def _create(self, desired: Mapping[Values, str], table_input: TableInput, folders: ContentFolders) -> bool:
        """Create the partitions that are missing; return whether the present ones are as desired.

        A present partition keeps what others have set in it, and moves only from where the content was before.
        """
        is_followed = True

        def attempt() -> bool:
            nonlocal is_followed
            present = self._registered.get(desired.keys())
            for values, entry in present.items():
                location, found = desired[values], location_of(entry)
                if found != location and folders.formerly_inside(found) is None:
                    raise self._registered_elsewhere(values, found)
                is_followed &= _updated(entry, location, table_input) == entry
            missing = [_created(each, desired[each], table_input) for each in desired.keys() - present.keys()]
            # Another engine may create one at the same time: then it is read again.
            return not self._registered.create(missing)

        if not retry_until_done(attempt):
            raise TableBusy(
                f"Partitions of table {self.glue_table.name} could not be registered, because another writer created "
                "and dropped them during each attempt. Run the sync again when no other writer changes them."
            )
        return is_followed

    def _present(self, content: str) -> dict[Values, str]:
        """Return the locations of the partitions that have files, by their values."""
        return self._locations(content, {name.rpartition("/")[0] for name in self.folders.files(content)})

    def _locations(self, content: str, partition_folders: Iterable[str]) -> dict[Values, str]:
        """Return the locations of partitions by their values; folders that are not of a partition are left out."""
        if self.scheme is None:
            return {}
        found = {folder: self.scheme.folders.texts_of(folder) for folder in sorted(partition_folders)}
        return {values: f"{content}/{folder}" for folder, values in found.items() if values is not None}

    def _registered_elsewhere(self, values: Values, location: str) -> Exception:
        if self.scheme is not None and self.scheme.is_by_date:
            problem = f"its partition {'/'.join(values)} is registered at {location}, which is not in its location"
        else:
            # Values of other columns are contents of records, which no message has.
            problem = "a partition that rows were sent for is registered at a location that is not in the table's"
        remedy = "Drop that partition from the catalog, after moving its files, or set another table_prefix"
        return table_conflict(self.stream, self.glue_table.name, f"{problem}. {remedy}")


# Partitions as values


def location_of(entry: Mapping[str, Any]) -> str:
    """Return the location, with the scheme `s3` and without a trailing slash; as it is if it is not in S3."""
    location: str = entry.get("StorageDescriptor", {}).get("Location", "")
    try:
        return str(S3Address.parse(location)).removesuffix("/")
    except ValueError:
        return location


@dataclass(frozen=True, slots=True)
class ContentFolders:
    """The folder of a table's content, and folders that its content has `left`; S3 URIs without a trailing slash."""

    folder: str
    left: tuple[str, ...] = ()

    def inside(self, location: str) -> str | None:
        """Return the part of a location below the content's folder; None if it is not below it."""
        return _below(location, self.folder)

    def formerly_inside(self, location: str) -> str | None:
        """Return the part of a location below a folder where the content was before; None if it is below none."""
        ours = Folders.ours_around(location)
        beside = ours is not None and ours.rpartition("/")[0] == self.folder.rpartition("/")[0]
        former = {*self.left, *([ours] if ours is not None and beside else [])} - {self.folder}
        found = [relative for folder in former if (relative := _below(location, folder)) is not None]
        return min(found, key=len, default=None)

    def location_now(self, location: str) -> str | None:
        """Return where in the content's folder a partition belongs that is there or was where the content was before.

        None if it is elsewhere.
        """
        relative = self.inside(location) or self.formerly_inside(location)
        return None if relative is None else f"{self.folder}/{relative}"


def _below(location: str, folder: str) -> str | None:
    return location[len(folder) + 1 :] or None if location.startswith(f"{folder}/") else None


def _created(values: Values, location: str, table_input: TableInput) -> Entry:
    """Return a new partition with the storage descriptor of the table, as Athena and awswrangler create them."""
    storage = copy.deepcopy(table_input["StorageDescriptor"])
    storage["Location"] = f"{location}/"
    return {"Values": list(values), "StorageDescriptor": storage, "Parameters": {}}


def _updated(entry: Entry, location: str, table_input: TableInput) -> Entry:
    """Return a partition at this location, with the columns of the table."""
    updated = copy.deepcopy(entry)
    updated["StorageDescriptor"].setdefault("Columns", [])
    add_missing_columns(updated, table_input)
    set_column_types(updated, column_types(table_input))
    if location_of(entry) != location:
        updated["StorageDescriptor"]["Location"] = f"{location}/"
    return updated
