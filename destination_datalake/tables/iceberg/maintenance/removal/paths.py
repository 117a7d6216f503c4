"""The paths in manifest lists and manifests, read completely or not at all.

What seems not to be referred to is deleted, so a file that ends too early must not be taken for a shorter one.
PyIceberg's reader ends at an incomplete or empty Avro block without an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from destination_datalake.tables.iceberg.pyiceberg_internals import complete_records

# Iceberg spec: Manifest lists, Manifests. Only these fields are decoded.
_MANIFEST_LIST = Schema(
    NestedField(500, "manifest_path", StringType(), required=True),
    NestedField(501, "manifest_length", LongType(), required=True),
    NestedField(504, "added_files_count", IntegerType(), required=False),
    NestedField(505, "existing_files_count", IntegerType(), required=False),
    NestedField(515, "sequence_number", LongType(), required=False),
)
_MANIFEST = Schema(
    NestedField(0, "status", IntegerType(), required=True),
    NestedField(
        2,
        "data_file",
        StructType(
            NestedField(100, "file_path", StringType(), required=True),
            NestedField(104, "file_size_in_bytes", LongType(), required=True),
        ),
        required=True,
    ),
)


class Incomplete(Exception):
    """A manifest or manifest list ends too early, has more than its entries, or others than its snapshot says."""


class File(NamedTuple):
    """An object that metadata refers to, with its size in bytes."""

    path: str
    size: int


class Manifest(NamedTuple):
    """A manifest as a manifest list has it. `live` is the number of its live files; None in old tables.

    `sequence` is the sequence number of the commit that has added it; 0 in tables of format version 1.
    """

    path: str
    size: int
    live: int | None
    sequence: int = 0


def manifests_of(manifest_list: str, io: FileIO) -> list[Manifest]:
    """Return the manifests in a manifest list. Raises Incomplete, FileNotFoundError, and botocore's exceptions."""
    return [
        Manifest(path, size, None if added is None or existing is None else added + existing, sequence or 0)
        for path, size, added, existing, sequence in _records(manifest_list, _MANIFEST_LIST, io)
    ]


def live_files(manifest: Manifest, io: FileIO) -> list[File]:
    """Return the live files in a manifest, data files and delete files. Raises as `manifests_of`."""
    entries = _records(manifest.path, _MANIFEST, io)
    live = [File(*file) for status, file in entries if status != ManifestEntryStatus.DELETED]
    if manifest.live is not None and len(live) != manifest.live:
        raise Incomplete(f"{manifest.path} has {len(live)} live files in place of {manifest.live}")
    return live


def _records(path: str, fields: Schema, io: FileIO) -> Iterator[Any]:
    try:
        yield from map(_values, complete_records(io.new_input(path), fields))
    except (EOFError, ResolveError, SystemError, ValueError, zlib.error) as error:
        raise Incomplete(f"{path} cannot be read: {error}") from error


def _values(record: Any) -> Any:
    return tuple(_values(each) if isinstance(each, Record) else each for each in record._data)
