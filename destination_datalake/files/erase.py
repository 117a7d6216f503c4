"""The erasure job, as it runs on executors: objects are written again without some of their rows, or lines.

An object is replaced in one step, and only if it is still the one that was read: readers see it before or after. What
is left stays as it was: lines byte for byte, in their order; of Parquet files the columns, row groups, field ids,
compression and metadata, as when columns are widened. The memory that it takes depends neither on the size of an object
nor on the number of its rows, but on one row group, and has one byte for each row of a Parquet file.

A line of the archive leaves an empty line behind: ids of rows count lines.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from gzip import BadGzipFile
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import (
    MEMBER_BYTES,
    PIECE_BYTES,
    GzipUpload,
    Upload,
    get,
    inflated,
    is_changed,
    is_missing,
    rollback_on_error,
    whole_lines,
)
from destination_datalake.files.ids import NO_IDS
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.plan import UNKNOWN, SourceFile
from destination_datalake.files.projection import Unsuitable
from destination_datalake.files.reading import OpenedFile, StoredFile
from destination_datalake.files.rewrite import copy_rows
from destination_datalake.files.scan import matching_rows
from destination_datalake.protocol.frames import line_bounds
from destination_datalake.protocol.json_text import object_of
from destination_datalake.records.search import Chosen, RecordSearch
from destination_datalake.records.values.rules import path_step
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import Field

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

    from destination_datalake.aws.access import AwsAccess

Content = Literal["archive", "rejects", "rows"]
"""RECORD lines as they were received; dead letters; or a table's rows, in Parquet or JSON lines, gzipped or not."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as S3 lists it; `size` in bytes. `version` is the id of a former version, None for the present one."""

    uri: str
    etag: str
    size: int
    version: str | None = None


@dataclass(frozen=True, slots=True)
class EraseTask:
    """Objects to be searched for rows, or lines, whose value of a column is one of the `ids`.

    The value may be in any of the `columns`, which are one column of the table under the names and paths that it has or
    had there: `Field.path` leads to it in a record's data, or in a row. With `write`, objects that have such rows are
    written again without them; former versions never are. Each of the `groups` is of one object, or, of rejects, has
    those that one attempt at a unit has written: lines of one record may be in several of them.
    """

    groups: tuple[tuple[StoredObject, ...], ...]
    content: Content
    columns: tuple[Field, ...]
    access: AwsAccess
    write: bool = False
    ids: Chosen = NO_IDS


@dataclass(frozen=True, slots=True)
class Erased:
    """An object, of which `found` rows or lines were found, and are not in it any more if it `was_written`.

    `was_removed`: it was a table's file that had no others, and was deleted. `is_gone`: it was deleted or replaced
    meanwhile by somebody else, and has to be looked at again.
    """

    object: StoredObject
    found: int
    was_written: bool = False
    was_removed: bool = False
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class NotErased(Failed):
    """An object that could not be read, or written again."""

    object: StoredObject


EraseResult = Erased | NotErased


def erase(tasks: Iterable[EraseTask]) -> Iterator[EraseResult]:
    """Search every task's objects; yield a result for each. A failure does not stop the others."""
    for task in tasks:
        for group in task.groups:
            result = attempt(partial(_erased, group, task), partial(_problem, group, task))
            if isinstance(result, Failed):
                yield from (NotErased(result.failure, each) for each in group)
            else:
                yield from result


def _problem(group: Sequence[StoredObject], task: EraseTask, error: Exception) -> Problem:
    uri = group[0].uri
    remedy = None
    if isinstance(error, Unsuitable | EOFError | BadGzipFile):
        remedy = (
            f"It cannot be told whether {uri} has rows to be erased: the file {error}. Another program has written or "
            "changed it. Delete it, or let that program write it again, and repeat the command."
        )
    return Problem(f"{uri} could not be searched", "search and replace", uri, task.access, remedy)


def _erased(group: Sequence[StoredObject], task: EraseTask) -> list[Erased]:
    s3 = task.access.client("s3")
    try:
        match task.content:
            case "archive":
                return [_lines_erased(group[0], task, s3, RecordSearch(task.columns, task.ids).found)]
            case "rejects":
                return _rejects_erased(group, task, s3)
            case "rows":
                return [_rows_erased(group[0], task, s3)]
    except Exception as error:
        if is_changed(error) or any(_is_gone(error, each, s3) for each in group):
            return [Erased(each, 0, is_gone=True) for each in group]
        raise


def _is_gone(error: Exception, stored: StoredObject, s3: S3Client) -> bool:
    """Whether S3 has refused a request because the object, or this version of it, is not there any more."""
    if stored.version is None:
        return is_missing(error, s3, stored.uri)
    return getattr(error, "response", {}).get("Error", {}).get("Code") in ("NoSuchKey", "NoSuchVersion", "404")


# --- Lines ----------------------------------------------------------------------------------------------------------

Find = Callable[[bytes], "NDArray[np.bool_]"]
"""From whole lines, none of them blank, to a mask of those that are found."""


def _lines_erased(stored: StoredObject, task: EraseTask, s3: S3Client, find: Find) -> Erased:
    """Write an object of lines again without those that are found."""
    pieces = _pieces(stored, s3)
    first = next(pieces, b"")
    is_gzip = first.startswith(b"\x1f\x8b")
    content = chain([first], pieces)
    upload = _upload_over(stored, s3) if task.write and stored.version is None else None
    output = GzipUpload(upload, MEMBER_BYTES) if upload is not None and is_gzip else upload
    found, has_others = 0, False
    with rollback_on_error(*([] if upload is None else [upload.abort])):
        for lines in whole_lines(inflated(content) if is_gzip else content):
            left, count = _without(lines, find, keeps_numbers=task.content == "archive")
            found += count
            has_others |= bool(left.strip())
            if output is not None:
                output.write(left)
        if upload is None or output is None:
            return Erased(stored, found)
        # The archive's index names its objects, and readers look for rejects in folders that have some.
        is_removed = found > 0 and task.content == "rows" and not has_others
        if not found or is_removed:
            upload.abort()
            return _removed(stored, found, s3) if is_removed else Erased(stored, 0)
        output.close()
    return Erased(stored, found, was_written=True)


def _removed(stored: StoredObject, found: int, s3: S3Client) -> Erased:
    """Delete an object that has no other rows, if it is still the one that was read."""
    address = S3Address.parse(stored.uri)
    s3.delete_object(Bucket=address.bucket, Key=address.key, IfMatch=stored.etag)
    return Erased(stored, found, was_written=True, was_removed=True)


def _upload_over(stored: StoredObject, s3: S3Client) -> Upload:
    """Return an upload that takes the object's place, with its metadata, if it is still the one that was read."""
    address = S3Address.parse(stored.uri)
    head = s3.head_object(Bucket=address.bucket, Key=address.key, IfMatch=stored.etag)
    return Upload(s3, stored.uri, deferred=False, metadata=head["Metadata"], if_match=stored.etag)


def _pieces(stored: StoredObject, s3: S3Client) -> Iterator[bytes]:
    for start in range(0, stored.size, PIECE_BYTES):
        end = min(start + PIECE_BYTES, stored.size)
        yield _read(stored, s3, start, end)


def _read(stored: StoredObject, s3: S3Client, start: int, end: int) -> bytes:
    # A version never changes.
    etag = stored.etag if stored.version is None else None
    return get(s3, stored.uri, start, end, etag, stored.version)


def _without(lines: bytes, find: Find, *, keeps_numbers: bool) -> tuple[bytes, int]:
    """Return the lines without those that are found, and how many these are. Their newlines stay with their numbers."""
    ended = lines if lines.endswith(b"\n") else lines + b"\n"
    octets = np.frombuffer(ended, np.uint8)
    starts, ends = line_bounds(octets)
    present = np.flatnonzero(_has_text(octets, starts, ends))
    if not len(present):
        return lines, 0
    if len(present) == len(starts):
        dead = np.flatnonzero(find(ended))
    else:
        dead = present[find(_cut(octets, np.delete(starts, present), np.delete(ends, present) + 1))]
    if not len(dead):
        return lines, 0
    left = _cut(octets, starts[dead], ends[dead] if keeps_numbers else ends[dead] + 1)
    return left if len(ended) == len(lines) or dead[-1] == len(starts) - 1 else left[:-1], len(dead)


def _has_text(octets: NDArray[np.uint8], starts: Any, ends: Any) -> NDArray[np.bool_]:
    """Return which lines are not blank."""
    has_text: NDArray[np.bool_] = ends > starts
    begins_blank = has_text & np.isin(octets[starts], _SPACE)
    for number in np.flatnonzero(begins_blank).tolist():
        has_text[number] = bool(octets[starts[number] : ends[number]].tobytes().strip())
    return has_text


_SPACE = np.frombuffer(b" \t\r\v\f", np.uint8)
"""What `bytes.strip` removes, but for newlines."""


def _cut(octets: NDArray[np.uint8], starts: Any, ends: Any) -> bytes:
    """Return a text without these parts."""
    edges = np.zeros(len(octets) + 1, np.int8)
    edges[starts] += 1
    edges[ends] -= 1
    left: bytes = octets[np.cumsum(edges[:-1], dtype=np.int8) == 0].tobytes()
    return left


# --- Rejects --------------------------------------------------------------------------------------------------------


class _RejectLine(msgspec.Struct, gc=False):
    """What is read of a dead letter: see `rejects.line.RejectLine`."""

    sequence: str | None = msgspec.field(default=None, name="sequenceNumber")
    raw_data: str | None = msgspec.field(default=None, name="rawData")
    column_name: str | None = None
    column_value: str | None = None


_REJECT = msgspec.json.Decoder(_RejectLine)


def _rejects_erased(group: Sequence[StoredObject], task: EraseTask, s3: S3Client) -> list[Erased]:
    """Write dead letters again without those of records that are found, in whichever object of the group they are.

    The line that has a record's text goes last: whoever finishes what was interrupted finds the others by it.
    """
    dead = _DeadRecords(task)
    for stored in group:
        _lines_erased(stored, replace(task, write=False), s3, dead.note)
    if not dead.are_found:
        return [Erased(each, 0) for each in group]
    if len(group) == 1 or not task.write:
        return [_lines_erased(each, task, s3, dead.lines) for each in group]
    firsts = [_lines_erased(each, task, s3, dead.lines_without_text) for each in group]
    found: list[Erased] = []
    for first in firsts:
        stored = _listed(first.object, s3) if first.was_written else first.object
        last = _lines_erased(stored, task, s3, dead.lines)
        found.append(Erased(first.object, first.found + last.found, first.was_written or last.was_written))
    return found


def _listed(stored: StoredObject, s3: S3Client) -> StoredObject:
    """Return an object as it is now."""
    address = S3Address.parse(stored.uri)
    head = s3.head_object(Bucket=address.bucket, Key=address.key)
    return StoredObject(stored.uri, head["ETag"], head["ContentLength"])


class _DeadRecords:
    """The records of a group whose rejects are erased, by their sequence numbers."""

    def __init__(self, task: EraseTask) -> None:
        self._search = RecordSearch(task.columns, task.ids)
        self._paths = {".".join(map(path_step, column.path)): column.path for column in task.columns}
        self.sequences: set[str] = set()
        self.are_found = False

    def note(self, lines: bytes) -> NDArray[np.bool_]:
        """Note the records that are found in these lines."""
        parsed = self._parsed(lines)
        found = self._found(parsed)
        self.sequences |= {
            each.sequence for each, is_found in zip(parsed, found, strict=True) if is_found and each.sequence
        }
        self.are_found |= bool(found.any())
        return found

    def lines(self, lines: bytes) -> NDArray[np.bool_]:
        """Return the lines of those records."""
        parsed = self._parsed(lines)
        return self._found(parsed) | np.array([each.sequence in self.sequences for each in parsed], np.bool_)

    def lines_without_text(self, lines: bytes) -> NDArray[np.bool_]:
        """Return those that have not the record's text."""
        parsed = self._parsed(lines)
        return np.array([each.raw_data is None and each.sequence in self.sequences for each in parsed], np.bool_)

    def _parsed(self, lines: bytes) -> list[_RejectLine]:
        try:
            return [_REJECT.decode(line) for line in lines.split(b"\n") if line.strip()]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Unsuitable("has a line that is no reject") from error

    def _found(self, parsed: Sequence[_RejectLine]) -> NDArray[np.bool_]:
        texts = [self._record(each) for each in parsed]
        found = np.zeros(len(parsed), np.bool_)
        numbers = [number for number, text in enumerate(texts) if text]
        if numbers:
            found[numbers] = self._search.found(b"".join(texts[number] + b"\n" for number in numbers))
        return found

    def _record(self, reject: _RejectLine) -> bytes:
        """Return the record that a reject is of; of one that has only a value of the column, that alone."""
        if reject.raw_data is not None:
            return base64.b64decode(reject.raw_data).replace(b"\n", b" ").strip()
        path = self._paths.get(reject.column_name or "")
        if path is None or reject.column_value is None:
            return b""
        value = reject.column_value.encode().replace(b"\n", b" ")
        for key in reversed(path):
            value = object_of({key: Raw(value)})
        return _as_record(value)


# --- Rows -----------------------------------------------------------------------------------------------------------

_PARQUET = b"PAR1"


def _rows_erased(stored: StoredObject, task: EraseTask, s3: S3Client) -> Erased:
    """Write a table's file again without the rows that are found."""
    start = _read(stored, s3, 0, min(len(_PARQUET), stored.size)) if stored.size else b""
    if start == _PARQUET:
        return _parquet_erased(stored, task, s3)
    return _lines_erased(stored, task, s3, _RowSearch(task).found)


class _RowSearch:
    """Finds rows in JSON lines. Readers compare keys without case; what this connector writes has one spelling."""

    def __init__(self, task: EraseTask) -> None:
        self._columns = task.columns
        self._chosen = task.ids
        self._search = RecordSearch(task.columns, task.ids)
        steps = {re.escape(step.encode()) for column in task.columns for step in column.path}
        self._steps = re.compile(b'"(' + b"|".join(steps) + b')"', re.IGNORECASE)

    def found(self, lines: bytes) -> NDArray[np.bool_]:
        """Return a mask of lines. Raises Unsuitable for what is no JSON."""
        if lines.lstrip()[:1] != b"{":
            raise Unsuitable("is neither Parquet nor JSON lines")
        spelled = {step.decode() for step in set(self._steps.findall(lines))}
        columns = dict.fromkeys(each for column in self._columns for each in _spellings(column, spelled))
        if not columns.keys() <= set(self._columns):
            self._columns = (*dict.fromkeys((*self._columns, *columns)),)
            self._search = RecordSearch(self._columns, self._chosen)
        return self._search.found(b"".join(_as_record(line) + b"\n" for line in lines.split(b"\n") if line.strip()))


def _spellings(column: Field, spelled: Iterable[str]) -> Iterator[Field]:
    """Yield a column under all spellings of the keys that lead to it."""
    of_steps = [[each for each in spelled if each.lower() == step.lower()] for step in column.path]
    for *parents, source in product(*of_steps):
        yield replace(column, source=source, parents=tuple(parents))


def _as_record(data: bytes) -> bytes:
    """Return the RECORD line that has a row as its data."""
    return b'{"type":"RECORD","record":{"stream":"","emitted_at":0,"data":%b}}' % data


def _parquet_erased(stored: StoredObject, task: EraseTask, s3: S3Client) -> Erased:
    etag = stored.etag if stored.version is None else None
    source = SourceFile(stored.uri, stored.size, UNKNOWN, etag=etag, version=stored.version)
    with StoredFile(source, s3) as content:
        file = OpenedFile(content)
        dead = _dead_rows(file, task)
        found = int(np.count_nonzero(dead))
        if not found or not task.write or stored.version is not None:
            return Erased(stored, found)
        if dead.all():
            return _removed(stored, found, s3)
        upload = _upload_over(stored, s3)
        with rollback_on_error(upload.abort):
            copy_rows(file, file.schema, dead, upload)
            upload.close()
    return Erased(stored, found, was_written=True)


def _dead_rows(file: OpenedFile, task: EraseTask) -> NDArray[np.bool_]:
    """Return a mask of a file's rows, true for those that are found."""
    dead = np.zeros(file.row_count, np.bool_)
    for column in task.columns:
        path = _path_in(file.schema, column.path)
        if path is not None:  # Rows that have no such column have no value of it.
            dead |= matching_rows(file, path, arrow_type(widest(column.type)), task.ids)[0]
    return dead


def _path_in(schema: pa.Schema, path: Sequence[str]) -> Sequence[str] | None:
    """Return the names of a column's path in a file, which are compared without case; None if it has none."""
    found: list[str] = []
    fields: list[pa.Field[Any]] = list(schema)
    for step in path:
        field = next((each for each in fields if each.name.lower() == step.lower()), None)
        if field is None:
            return None
        found.append(field.name)
        fields = list(field.type) if isinstance(field.type, pa.StructType) else []
    return found
