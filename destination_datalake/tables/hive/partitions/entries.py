"""Registered partitions as values, and what must be changed for them to describe a table's content. Pure.

A partition of the Glue Data Catalog has a storage descriptor of its own, by which engines read its files: they must be
read with the types that they were written with. So the partitions of a table are an index derived from its content:
a location inside the content's folder, and the content's columns.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from destination_datalake.aws.address import S3Address
from destination_datalake.tables.glue.glue_table import TableInput
from destination_datalake.tables.glue.storage_descriptor import add_missing_columns, column_types, set_column_types
from destination_datalake.tables.hive.folders import Folders

Values = tuple[str, ...]
"""The values of a partition as Glue has them, one for each partition key of the table."""

Entry = dict[str, Any]
"""A registered partition (Glue API: PartitionInput)."""

# GetPartitions answers with more keys (Glue API: Partition), which updates refuse.
_ENTRY_KEYS = ("Values", "LastAccessTime", "StorageDescriptor", "Parameters", "LastAnalyzedTime")


def as_entry(partition: Mapping[str, Any]) -> Entry:
    """Return the part of Glue's answer that an update takes."""
    return {key: partition[key] for key in _ENTRY_KEYS if key in partition}


def values_of(entry: Mapping[str, Any]) -> Values:
    """Return the values of a partition."""
    return tuple(entry["Values"])


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


@dataclass(frozen=True, slots=True)
class Difference:
    """What must be changed. `elsewhere` are partitions that others registered at locations of their own."""

    creations: tuple[Entry, ...]
    updates: tuple[Entry, ...]
    elsewhere: tuple[Entry, ...]


def difference(
    desired: Mapping[Values, str], present: Mapping[Values, Entry], table_input: TableInput, folders: ContentFolders
) -> Difference:
    """Return what must be changed for the partitions in `desired`, which has their locations, to be as the table says.

    A present partition keeps what others have set in it, and moves only from where the content was before.
    """
    creations, updates, elsewhere = [], [], []
    for values, location in desired.items():
        entry = present.get(values)
        if entry is None:
            creations.append(_created(table_input, values, location))
            continue
        found = location_of(entry)
        if found != location and folders.formerly_inside(found) is None:
            elsewhere.append(entry)
            continue
        updated = _with_columns_of(table_input, entry)
        if found != location:
            updated["StorageDescriptor"]["Location"] = f"{location}/"
        if updated != entry:
            updates.append(updated)
    return Difference(tuple(creations), tuple(updates), tuple(elsewhere))


def following(present: Iterable[Entry], folders: ContentFolders) -> dict[Values, str]:
    """Return the locations, in the content's folder, of the partitions that are there or were where it was before."""
    found: dict[Values, str] = {}
    for entry in present:
        location = location_of(entry)
        relative = folders.inside(location) or folders.formerly_inside(location)
        if relative is not None:
            found[values_of(entry)] = f"{folders.folder}/{relative}"
    return found


def _below(location: str, folder: str) -> str | None:
    return location[len(folder) + 1 :] or None if location.startswith(f"{folder}/") else None


def _created(table_input: TableInput, values: Values, location: str) -> Entry:
    """Return a new partition with the storage descriptor of the table, as Athena and awswrangler create them."""
    storage = copy.deepcopy(table_input["StorageDescriptor"])
    storage["Location"] = f"{location}/"
    return {"Values": list(values), "StorageDescriptor": storage, "Parameters": {}}


def _with_columns_of(table_input: TableInput, entry: Entry) -> Entry:
    updated = copy.deepcopy(entry)
    updated["StorageDescriptor"].setdefault("Columns", [])
    add_missing_columns(updated, table_input)
    set_column_types(updated, column_types(table_input))
    return updated
