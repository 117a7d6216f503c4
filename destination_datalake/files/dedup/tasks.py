"""The tasks of a merge and their results. They contain positions of rows, but never the rows themselves.

A merge has three jobs:

1. *Winners* finds the latest row of each key in the pending files (files that no merge has included yet), and writes an
   index of these rows.
2. *Probe* looks up every row of the stored files in this index, and removes the rows that a pending row replaces.
3. *Apply* removes rows from the pending files: rows that are not the latest row of their key, and rows that only delete
   a key.

If all pending files are small, *winners* keeps them in memory and does the work of *apply* too. It cannot remove the
pending rows that are older than stored rows, because only *probe* finds them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import unquote, urlsplit

import numpy as np
from pyroaring import BitMap

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.plan import SourceFile, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

Deletes = Literal["copy_on_write", "merge_on_read"]
"""The way to remove rows from a file. "copy_on_write": rewrite the file without the rows. "merge_on_read": write the
positions of the rows to a position delete file."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The Iceberg field IDs of the columns that identify and order the versions of a row.

    A merge keeps only the latest version of a row. It compares versions by cursor (null is lowest, then NaN), then by
    `extracted_at`, then by their order of arrival. Rows in the result of the last merge count as arrived before all
    pending rows. Within each of these two groups, rows arrived in the order of `raw_id`.
    """

    key: tuple[int, ...]
    """Rows are versions of each other if these columns are equal. Null equals null, -0.0 equals 0.0, and NaN equals
    NaN."""
    cursor: int | None
    extracted_at: int
    raw_id: int
    deleted_at: int | None = None
    """If the latest version has a value in this column, it deletes its key."""

    @property
    def order(self) -> tuple[int, ...]:
        """The field IDs of the columns that order versions, most significant first.

        If two versions are equal in all of these columns, their order of arrival decides.
        """
        return (self.extracted_at,) if self.cursor is None else (self.cursor, self.extracted_at)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the key and order columns in Arrow tables with versions of rows: key0, key1, …, order0, …."""
        key = (f"key{number}" for number in range(len(self.key)))
        return (*key, *(f"order{number}" for number in range(len(self.order))))

    @property
    def columns(self) -> tuple[int, ...]:
        """The distinct field IDs of all columns that a merge reads to compare versions."""
        all_ids = (*self.key, *self.order, self.raw_id, self.deleted_at)
        return tuple(dict.fromkeys(id_ for id_ in all_ids if id_ is not None))


@dataclass(frozen=True, slots=True)
class RowSet:
    """A set of row positions in one file, counted from 0. `content` is a Roaring bitmap, serialized compactly."""

    content: bytes

    @classmethod
    def from_bitmap(cls, rows: BitMap) -> Self:
        """Return the set of the positions in `rows`. Compresses `rows` in place."""
        rows.run_optimize()
        return cls(rows.serialize())

    def rows(self) -> BitMap:
        """Return the positions as a bitmap. Raises ValueError if `content` is not a valid bitmap."""
        return BitMap.deserialize(self.content)


def add_rows(rows_by_file: dict[int, BitMap], files: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
    """Add rows to the bitmap of their file.

    Row i has the position `positions[i]` in the file with number `files[i]`.
    """
    # Sort by file, so that the positions of each file are one slice.
    order = np.argsort(files, kind="stable")
    numbers, starts = np.unique(files[order], return_index=True)
    # Bitmaps contain 32-bit numbers. `split` returns one slice even if there are no files, so `zip` is not strict.
    slices = np.split(positions[order].astype(np.uint32), starts[1:])
    for number, positions_of_file in zip(numbers.tolist(), slices, strict=False):
        # pyroaring copies an `array` of unsigned integers without creating a Python object for each position.
        rows = BitMap(array("I", positions_of_file.tobytes()))
        rows_by_file[number] = rows_by_file[number] | rows if number in rows_by_file else rows


def row_sets(rows_by_file: Mapping[int, BitMap]) -> dict[int, RowSet]:
    """Return the non-empty bitmaps as row sets, ordered by file number."""
    return {number: RowSet.from_bitmap(rows) for number, rows in sorted(rows_by_file.items()) if rows}


def united(sets: Iterable[Mapping[int, RowSet]]) -> dict[int, RowSet]:
    """Return the union of the row sets for each file, ordered by file number."""
    union: dict[int, BitMap] = {}
    for by_file in sets:
        for number, rows in by_file.items():
            union[number] = union.get(number, BitMap()) | rows.rows()
    return row_sets(union)


UNKNOWN = ...
"""A bound that the index does not contain: a time after the year 9999, a string that is not UTF-8, or a very long
value."""


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The lowest and highest value of one key column, without null and NaN, as Python values.

    Both bounds are None if the column contains only null and NaN. Both are UNKNOWN if the index omits one of them.
    """

    lowest: Any
    highest: Any
    has_null: bool
    has_nan: bool


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The index of winners for one part of the keys: a Parquet file at `uri`, or the `content` of a small file."""

    rows: int
    """The number of winners in this part."""
    bounds: tuple[KeyBounds, ...]
    """The bounds of each key column."""
    uri: str = ""
    size: int = 0
    """The size of the file in bytes."""
    content: bytes = field(default=b"", repr=False)


def local_path(uri: str) -> Path | None:
    """Return the local path of a `file:` URI, or None for an S3 URI."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@dataclass(frozen=True, slots=True)
class WinnersTask:
    """A Spark task that finds winners in some of the pending files. A winner is the latest pending row of its key."""

    files: tuple[SourceFile, ...]
    first_file: int
    """The number of the first of `files` among all pending files."""
    schema: pa.Schema
    """The columns of `versions`, with field IDs and the table's current types."""
    versions: Versions
    parts: int
    """The number of parts into which the job partitions keys by their hash. With a single part, it needs no shuffle."""
    index_folder: str | None
    """The URI (`file:` or `s3:`) of the folder for the index, without a trailing slash. None if no index is needed."""
    access: AwsAccess
    content_files: int = 0
    """The number of files, at the start of the list of all pending files, that contain the result of the last merge.
    The rows of these files count as arrived before all other rows."""
    removals: tuple[RemoveTask, ...] = ()
    """Tasks that remove rows from this task's small files while these files are in memory."""


@dataclass(frozen=True, slots=True)
class Winners:
    """The result of a `WinnersTask` for one part of the keys. After a shuffle, an empty part has no result.

    `keys` is the number of keys in the part. `losers` and `tombstones` map the index of a file in the list of all
    pending files to a set of rows in this file. These sets do not contain rows that position deletes already remove.
    """

    part: int
    keys: int
    losers: Mapping[int, RowSet]
    """The rows that are not the latest pending row of their key."""
    tombstones: Mapping[int, RowSet]
    """The winners that delete their key."""
    index: IndexPart | None
    """The index of the winners. None if there are no keys, or if the task has no `index_folder`."""
    removed: tuple[Removed, ...] = ()
    """The results of the task's `removals` for files with losers or tombstones. These removals do not compare pending
    rows with stored rows."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The rows to remove from one file, in addition to the rows that a row in the task's index replaces.

    The task removes both `dead` and `erased` rows. If there are `erased` rows, the task always rewrites the file, even
    if position deletes already hide these rows.
    """

    source: SourceFile
    dead: RowSet | None = None
    erased: RowSet | None = None


@dataclass(frozen=True, slots=True)
class RemoveTask:
    """A task that removes rows from one file, or from several small files of one partition, which it keeps in memory.

    If the task rewrites a file, the new file also lacks the rows that existing position deletes remove. If the task
    writes a position delete file for a data file, the new file includes the data file's existing position deletes, and
    so replaces the former position delete files.
    """

    name: str
    """The start of the names of new files. Each attempt at the task appends a random token."""
    files: tuple[Removal, ...]
    versions: Versions
    schema: pa.Schema
    """The schema of the table, with field IDs at every level."""
    folder: str
    """The S3 URI of the folder for new files, without a trailing slash."""
    codec: str
    deletes: Deletes
    access: AwsAccess
    index: tuple[IndexPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a `RemoveTask`. Numbers of files are indices of the task's `files`.

    The task does not change a file without rows to remove.
    """

    name: str
    obsolete: tuple[int, ...] = ()
    """The numbers of the files that the table must drop."""
    rewritten: WrittenFile | None = None
    """The new file with all live rows of the obsolete files, in the order of these files. None without live rows."""
    position_deletes: Mapping[int, WrittenFile] = field(default_factory=dict)
    """Maps the number of each other changed file to its new position delete file, which includes earlier deletions."""
    replaced: int = 0
    """The number of rows that a row in the index replaces."""
    deleted: int = 0
    """The number of rows whose key a row in the index deletes."""
    superseded: Mapping[int, RowSet] = field(default_factory=dict)
    """The pending rows that are older than a row of the task's files. Keys are the numbers of the pending rows' files
    among all pending files."""

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """All files that the task wrote."""
        return (*(() if self.rewritten is None else (self.rewritten,)), *self.position_deletes.values())
