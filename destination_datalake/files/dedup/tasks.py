"""The tasks of a merge: what executors receive, and what they answer. Rows do not travel, only their positions.

A merge is three jobs. *Winners* finds the latest row of each key among the pending files, and writes an index of them.
*Probe* looks the rows of every stored file up in that index, and removes those that a pending row replaces. *Apply*
removes from the pending files the rows that have lost, to others or to stored ones, and those that only delete. If
all pending files are small, *winners*, which has read them, does it too; *apply* is for rows that lose to stored ones.
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
"""How rows are removed from files: the file is written again without them, or a file of position deletes names them."""


@dataclass(frozen=True, slots=True)
class Versions:
    """By which columns rows are versions of one row, and which of them is the latest: Iceberg field ids.

    Keys are equal if all parts are, null with null, -0.0 with 0.0, NaN with NaN. Of several rows of a key the one with
    the highest cursor wins (null below NaN, NaN below all else), then the latest `extracted_at`; then that which
    arrived last: any pending row before one of the content, and the highest `raw_id` among either. A winner with a
    value in `deleted_at` deletes its key.
    """

    key: tuple[int, ...]
    cursor: int | None
    extracted_at: int
    raw_id: int
    deleted_at: int | None = None

    @property
    def order(self) -> tuple[int, ...]:
        """The columns by which a row is later than another, the most significant first; then the arrival decides."""
        return (self.extracted_at,) if self.cursor is None else (self.cursor, self.extracted_at)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of `key` and `order` in tables of versions."""
        key = (f"key{number}" for number in range(len(self.key)))
        return (*key, *(f"order{number}" for number in range(len(self.order))))

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that have to be read, each once."""
        all_ids = (*self.key, *self.order, self.raw_id, self.deleted_at)
        return tuple(dict.fromkeys(id_ for id_ in all_ids if id_ is not None))


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows of one file, by position from 0, as jobs and the driver exchange them: a serialized Roaring bitmap."""

    content: bytes

    @classmethod
    def of(cls, rows: BitMap) -> Self:
        """Return the rows at these positions."""
        rows.run_optimize()
        return cls(rows.serialize())

    def rows(self) -> BitMap:
        """Return the positions. Raises ValueError if the content is no bitmap."""
        return BitMap.deserialize(self.content)


def add_rows(found: dict[int, BitMap], files: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
    """Add rows, each named by the number of its file and its position there, to those found of each file."""
    order = np.argsort(files, kind="stable")
    numbers, starts = np.unique(files[order], return_index=True)
    in_order = np.split(positions[order].astype(np.uint32), starts[1:])
    for number, of_file in zip(numbers.tolist(), in_order, strict=False):
        rows = BitMap(array("I", of_file.tobytes()))
        found[number] = found[number] | rows if number in found else rows


def row_sets(found: Mapping[int, BitMap]) -> dict[int, RowSet]:
    """Return the rows of each file that has any, in the order of their numbers."""
    return {number: RowSet.of(rows) for number, rows in sorted(found.items()) if rows}


def united(sets: Iterable[Mapping[int, RowSet]]) -> dict[int, RowSet]:
    """Return the rows that are in any of some sets, by the number of their file, in the order of these."""
    found: dict[int, BitMap] = {}
    for by_file in sets:
        for number, each in by_file.items():
            found[number] = found.get(number, BitMap()) | each.rows()
    return row_sets(found)


UNKNOWN = ...
"""A bound that Python has no value for: a time after the year 9999, or a text that is not UTF-8; or a very long one."""


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Of one part of the keys: the lowest and highest value as Arrow's `as_py` gives them, without null and NaN.

    Both are None if there are no others, and both UNKNOWN if one is.
    """

    lowest: Any
    highest: Any
    has_null: bool
    has_nan: bool


@dataclass(frozen=True, slots=True)
class IndexPart:
    """An index of winners, one part of those of all keys: a Parquet file at `uri`, or `content` if it is small.

    `bounds` has one entry for each part of the key.
    """

    rows: int
    bounds: tuple[KeyBounds, ...]
    uri: str = ""
    size: int = 0
    content: bytes = field(default=b"", repr=False)


def local_path(uri: str) -> Path | None:
    """Return the path that a URI has on the local disk; None if it is one of S3."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@dataclass(frozen=True, slots=True)
class WinnersTask:
    """Pending files to find the winners in: those of one Spark task.

    `schema` has the columns of `versions` with their field ids, in the types that the table has now. `files` begin
    with number `first_file` among all pending files. Keys are divided among `parts` (1: no shuffle is needed).
    `index_folder` is a URI (`file:` or `s3:`) without a slash at its end; None if nobody asks for an index. Of all
    pending files the first `content_files` are of the content: their rows have arrived before all others.

    `removals` are of files of this task, which are small: they are done at once, for files that have rows without which
    the table would be, as the files are in memory already.
    """

    files: tuple[SourceFile, ...]
    first_file: int
    schema: pa.Schema
    versions: Versions
    parts: int
    index_folder: str | None
    access: AwsAccess
    content_files: int = 0
    removals: tuple[RemoveTask, ...] = ()


@dataclass(frozen=True, slots=True)
class Winners:
    """What one part of the keys has. Files are named by their number among all pending files.

    `index` is None if there are no keys, or nobody asked for one. A shuffle has no result for a part without rows.
    `losers` are rows that another pending row replaces; `tombstones` are winners that delete their key. Rows that
    position deletes have removed are in neither. `removed` has the results of removals, as if no stored row was later:
    their files are those of the task that have losers or tombstones.
    """

    part: int
    keys: int
    losers: Mapping[int, RowSet]
    tombstones: Mapping[int, RowSet]
    index: IndexPart | None
    removed: tuple[Removed, ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """The removal of rows from one file: those in `dead`, and those that a row in the task's index replaces.

    Rows that are `erased` are removed too, and the file is written again even if position deletes hide them already.
    """

    source: SourceFile
    dead: RowSet | None = None
    erased: RowSet | None = None


@dataclass(frozen=True, slots=True)
class RemoveTask:
    """The removal of rows from one file, or from several small ones of one partition, which are held in memory.

    `schema` is the table's, with field ids at every level. New files are in `folder`, an S3 URI without a slash at its
    end, and have `name` and a token of the attempt in their names. Position deletes that a file has already are applied
    to a file that is written again, and repeated in a new file of position deletes, which takes their place.
    """

    name: str
    files: tuple[Removal, ...]
    versions: Versions
    schema: pa.Schema
    folder: str
    codec: str
    deletes: Deletes
    access: AwsAccess
    index: tuple[IndexPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Removed:
    """The files of a `RemoveTask` afterwards, by their number in it.

    Those without rows to be removed stay as they are. Those in `gone` are to leave the table: their other rows are in
    `rewritten`, in the files' order; it is None if there are none. Each of the others has a file in `position_deletes`
    that names all its deleted rows, also those that were deleted before.

    `replaced` and `deleted` count rows that the index removes: by upserts, and by tombstones. `superseded` are pending
    rows that lose to rows of these files, by the number of their file among all pending ones.
    """

    name: str
    gone: tuple[int, ...] = ()
    rewritten: WrittenFile | None = None
    position_deletes: Mapping[int, WrittenFile] = field(default_factory=dict)
    replaced: int = 0
    deleted: int = 0
    superseded: Mapping[int, RowSet] = field(default_factory=dict)

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """The new files."""
        return (*(() if self.rewritten is None else (self.rewritten,)), *self.position_deletes.values())
