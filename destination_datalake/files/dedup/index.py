"""The index of winners: Arrow files that tasks map into memory, and look keys up in.

Rows are in the order of their keys' hashes: they are searched for, or found by a directory by the first bits.
"""

from __future__ import annotations

import errno
import io
import mmap
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from destination_datalake.aws.objects import Upload, get, undone_on_failure
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.dedup.keys import key_hashes, mask, one_array
from destination_datalake.files.dedup.order import is_as_late
from destination_datalake.files.dedup.tasks import UNKNOWN, IndexPart, KeyBounds
from destination_datalake.files.sorting import spark_directory

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_INLINE_BYTES = 8 * 1024
"""An index up to this size travels with the tasks: one for each stored file, of which there may be 10,000."""

_STEPS = 64
"""How many rows of an index are compared with a key, at most, before another way to find it is chosen."""

_LONGEST_BOUND = 256
"""Bounds travel with each task. A longer text is none."""

_RANGE_BYTES = 16 * 1024 * 1024
_KEPT_BYTES = 1024 * 1024 * 1024
"""How much of what a Python worker has downloaded it keeps on its disk."""


_FEW = 8
"""Use binary search for few keys, fewer than this share of the index, and a radix directory for many."""


class KeySet:
    """Keys, each of which is a row of the index."""

    def __init__(self, table: pa.Table) -> None:
        """`table` has the columns that `key_table` gives it."""
        self.keys: pa.Array[Any] = one_array(table.column("key"))
        self._hashes: NDArray[np.uint64] = one_array(table.column("hash")).to_numpy()
        self._bits = max(1, (2 * len(self) - 1).bit_length())
        self._directory: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self._hashes)

    def lookup(self, keys: pa.Array[Any], hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return for each canonical key, given with its hash, the row of the index that has it; -1 if none has."""
        found = np.full(len(keys), -1, np.int64)
        candidates, ends = self._candidates(hashes)
        rows = np.flatnonzero(candidates < ends)
        candidates, ends = candidates[rows], ends[rows]
        for _ in range(_STEPS):
            if not rows.size:
                return found
            is_like = self._hashes[candidates] == hashes[rows]
            is_found = is_like.copy()
            is_found[is_like] = self._has(candidates[is_like], keys, rows[is_like])
            found[rows[is_found]] = candidates[is_found]
            candidates += 1
            is_open = ~is_found & (candidates < ends)
            rows, candidates, ends = rows[is_open], candidates[is_open], ends[is_open]
        # So many keys have the same hash only if somebody has made them so. Arrow's hash is another.
        at: Any = pc.index_in(keys.take(rows), value_set=self.keys)
        found[rows] = at.fill_null(-1).to_numpy()
        return found

    def _candidates(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return for each hash where the rows begin and end that may have it."""
        if self._directory is None and len(hashes) * _FEW < len(self):
            starts = np.searchsorted(self._hashes, hashes)
            ends = starts.copy()
            is_there = self._hashes[np.minimum(starts, len(self) - 1)] == hashes
            ends[is_there] = np.searchsorted(self._hashes, hashes[is_there], "right")
            return starts, ends
        shift = np.uint64(64 - self._bits)
        if self._directory is None:
            in_bucket = np.bincount((self._hashes >> shift).view(np.int64), minlength=2**self._bits)
            self._directory = np.concatenate((np.zeros(1, np.int32), np.cumsum(in_bucket, dtype=np.int32)))
        buckets = (hashes >> shift).view(np.int64)
        return self._directory[buckets], self._directory[buckets + 1]

    def _has(self, candidates: NDArray[Any], keys: pa.Array[Any], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        ours, theirs = self.keys.take(candidates), keys.take(rows)
        are_equal = cast("pa.BooleanArray", pc.equal(ours, theirs).fill_null(False))
        if keys.null_count:
            are_equal = pc.or_(are_equal, pc.and_(ours.is_null(), theirs.is_null()))
        return mask(are_equal)


class Index(KeySet):
    """Winners by their keys. Arrays have an element for each row of the index.

    `files` and `positions` say where a winner lies among the pending files; `is_tombstone` whether it deletes its key.
    """

    def __init__(self, table: pa.Table) -> None:
        """`table` has the columns that `index_table` gives it."""
        super().__init__(table)
        columns: dict[str, Any] = {name: one_array(table.column(name)) for name in table.column_names}
        self._order: list[pa.Array[Any]] = [columns[name] for name in columns if name.startswith("order")]
        self.files: NDArray[np.int32] = columns["file"].to_numpy()
        self.positions: NDArray[np.int64] = columns["position"].to_numpy()
        self.is_tombstone: NDArray[np.bool_] = mask(columns["is_tombstone"])

    def replaces(self, rows: NDArray[np.int64], stored: Sequence[pa.Array[Any]]) -> NDArray[np.bool_]:
        """Return a mask of the rows of the index that are later than stored rows of their keys, one for each.

        `stored` has their columns of `Versions.order`.
        """
        return is_as_late([values.take(rows) for values in self._order], stored)


def key_table(keys: pa.Array[Any]) -> pa.Table:
    """Return the rows of an index of canonical keys alone, in their order."""
    hashes = key_hashes(keys)
    order = np.argsort(hashes)
    return pa.table({"key": keys.take(order), "hash": hashes[order]})


def index_table(keys: pa.Array[Any], winners: pa.Table) -> pa.Table:
    """Return the rows of an index in their order, given winners and their canonical keys.

    Of `winners` the columns `order0` and so on, `is_tombstone`, `file` and `position` are kept.
    """
    hashes = key_hashes(keys)
    order = np.argsort(hashes)
    kept = [name for name in winners.column_names if name.startswith(("order", "is_tombstone", "file", "position"))]
    columns = {name: one_array(winners.column(name)).take(order) for name in kept}
    return pa.table({"key": keys.take(order), "hash": hashes[order]} | columns)


def bounds_of(column: pa.Array[Any]) -> KeyBounds:
    """Return the bounds of values of one part of a key."""
    has_null, has_nan = column.null_count > 0, False
    if pa.types.is_floating(column.type):
        is_nan = pc.is_nan(column)
        has_nan = bool(pc.any(is_nan).as_py())
        column = column.filter(pc.invert(is_nan))
    found = pc.min_max(column)
    try:
        lowest, highest = found["min"].as_py(), found["max"].as_py()
    except (ValueError, OverflowError):
        return KeyBounds(UNKNOWN, UNKNOWN, has_null, has_nan)
    if any(isinstance(each, str | bytes) and len(each) > _LONGEST_BOUND for each in (lowest, highest)):
        return KeyBounds(UNKNOWN, UNKNOWN, has_null, has_nan)
    return KeyBounds(lowest, highest, has_null, has_nan)


def write_index(
    table: pa.Table, number: int, parts: int, bounds: tuple[KeyBounds, ...], folder: str, access: AwsAccess
) -> IndexPart:
    """Write an index, with one row at least, as part `number` of `parts`; its file is in `folder`, if it needs one.

    The folder is as in `WinnersTask`. Raises ConnectorError if it is on a disk that is full, and errors of AWS.
    """
    if table.nbytes <= _INLINE_BYTES:
        content = io.BytesIO()
        size = _write(table, content)
        return IndexPart(number, parts, table.num_rows, size, bounds, content=content.getvalue())
    # Another attempt at the same part may be at work.
    uri = f"{folder}/index-{number:05d}-{secrets.token_hex(4)}.arrow"
    if (path := _local_path(uri)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _enough_disk(), undone_on_failure(lambda: path.unlink(missing_ok=True)), path.open("wb") as file:
            size = _write(table, file)
    else:
        upload = Upload(access.client("s3"), uri, deferred=False)
        with undone_on_failure(upload.abort):
            size = _write(table, upload)
            upload.close()
    return IndexPart(number, parts, table.num_rows, size, bounds, uri=uri)


def _write(table: pa.Table, file: Any) -> int:
    """Write the table to a file object; return how many bytes that took."""
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return int(file.tell())


def open_index(part: IndexPart, access: AwsAccess) -> Index:
    """Return an index of winners, as `open_keys` does."""
    index = open_keys(part, access, Index)
    assert isinstance(index, Index)
    return index


def open_keys(part: IndexPart, access: AwsAccess, kind: type[KeySet] = KeySet) -> KeySet:
    """Return an index, mapped into memory. One in S3 is downloaded once by each process, to a file without a name.

    The one that was opened last stays open. Raises OSError if it is gone, ConnectorError if the disk is full, and
    errors of AWS.
    """
    if part.content:
        return kind(_table(part.content))
    if (last := _last_opened.get(part.uri)) is not None:
        return last
    if (path := _local_path(part.uri)) is not None:
        with path.open("rb") as file:
            content = _mapped(file.fileno())
    else:
        content = _downloads.content(part, access)
    index = kind(_table(content))
    _last_opened.clear()
    _last_opened[part.uri] = index
    return index


_last_opened: dict[str, KeySet] = {}


def _table(content: bytes | mmap.mmap) -> pa.Table:
    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(content))).read_all()


def _local_path(uri: str) -> Path | None:
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@contextmanager
def _enough_disk() -> Iterator[None]:
    """Raise ConnectorError where the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        message = (
            "The disk on which deduplication keeps an index of keys is full. Set TMPDIR (for executors of a cluster, "
            "spark.local.dir) to a folder on a larger disk."
        )
        raise ConnectorError(Failure(message, str(error), "transient_error")) from error


def _mapped(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


class _Downloads:
    """A Python worker's downloads of an index. It forgets those of other merges, and the oldest beyond _KEPT_BYTES."""

    def __init__(self) -> None:
        self._kept: dict[str, mmap.mmap] = {}

    def content(self, part: IndexPart, access: AwsAccess) -> mmap.mmap:
        if part.uri not in self._kept:
            self._make_room(part)
            self._kept[part.uri] = _downloaded(part, access)
        return self._kept[part.uri]

    def _make_room(self, part: IndexPart) -> None:
        folder = part.uri.rpartition("/")[0]
        for uri in [uri for uri in self._kept if uri.rpartition("/")[0] != folder]:
            del self._kept[uri]
        while self._kept and sum(map(len, self._kept.values())) + part.size > _KEPT_BYTES:
            del self._kept[next(iter(self._kept))]


_downloads = _Downloads()


def _downloaded(part: IndexPart, access: AwsAccess) -> mmap.mmap:
    with _enough_disk(), tempfile.TemporaryFile(dir=spark_directory()) as file:
        for content in _ranges(part, access):
            file.write(content)
        file.flush()
        return _mapped(file.fileno())


def _ranges(part: IndexPart, access: AwsAccess) -> Iterator[bytes]:
    for start in range(0, part.size, _RANGE_BYTES):
        yield get(access.client("s3"), part.uri, start, min(start + _RANGE_BYTES, part.size))
