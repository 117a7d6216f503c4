"""The erasure job on executors: rewrite objects in S3 without the rows or lines that contain certain IDs.

The job replaces an object atomically, and only if the object has not changed since the job read it. The remaining lines
keep their bytes and their order. Parquet files keep their columns, row groups, field IDs, compression and metadata. A
task needs memory for at most one row group, plus one byte per row of a Parquet file.

In the archive, an erased line becomes an empty line. The other lines keep their line numbers, on which row IDs depend.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from gzip import BadGzipFile
from itertools import chain, compress, product
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from destination_datalake.aws.objects import (
    MEMBER_BYTES,
    PIECE_BYTES,
    GzipUpload,
    HashedUpload,
    S3Address,
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
from destination_datalake.files.parquet import deleted_row
from destination_datalake.files.plan import UNKNOWN, SourceFile
from destination_datalake.files.reading import OpenedFile, StoredFile, UnsupportedFile
from destination_datalake.files.rewrite import copy_rows
from destination_datalake.files.scan import matching_rows
from destination_datalake.protocol.json_text import object_of
from destination_datalake.records.search import RecordSearch, ValueSet
from destination_datalake.records.values.rules import path_step
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import Field

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

    from destination_datalake.aws.access import AwsAccess

Content = Literal["archive", "rejects", "rows"]
"""The content of an object. "archive": RECORD lines as received. "rejects": dead letters (rejected records). "rows":
table rows as Parquet or (optionally gzipped) JSON Lines."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in S3, with the ETag and size in bytes from S3's listing.

    `version` is the ID of a noncurrent version, or None for the current version.
    """

    uri: str
    etag: str
    size: int
    version: str | None = None


@dataclass(frozen=True, slots=True)
class EraseTask:
    """A task that searches objects in S3 for rows or lines that contain one of the `ids` in a column.

    `columns` contains the column under its present and former names. `Field.path` is the column's path in a record's
    data or in a row. If `write` is set, the task rewrites each object that contains matching rows or lines, and leaves
    these out. The task never rewrites noncurrent versions.

    Each item of `groups` contains the objects that must be searched together. For rejects, a group consists of all
    objects that one attempt to encode a unit (one task's part of a batch) wrote, because these objects may share the
    lines of a record. For other content, a group is a single object.
    """

    groups: tuple[tuple[StoredObject, ...], ...]
    content: Content
    columns: tuple[Field, ...]
    access: AwsAccess
    write: bool = False
    ids: ValueSet = NO_IDS


@dataclass(frozen=True, slots=True)
class Erased:
    """The result for one object. `matches` is the number of matching rows or lines.

    If `was_written` is set, the task has erased these rows or lines. If `was_removed` is set, the task has deleted the
    object: a data file that contained only matching rows. If `is_gone` is set, another writer has, or may have, deleted
    or replaced an object of the group, so the caller must search the group again.
    """

    object: StoredObject
    matches: int
    was_written: bool = False
    was_removed: bool = False
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class NotErased(Failed):
    """The result for each object of a group that the task could not search or rewrite.

    `failure` contains the message for the user.
    """

    object: StoredObject


EraseResult = Erased | NotErased


def erase(tasks: Iterable[EraseTask]) -> Iterator[EraseResult]:
    """Search the objects of each task, and rewrite them if the task has `write` set. Yield one result per object.

    If a group fails, yields a NotErased for each object of the group, and continues with the next group.
    """
    for task in tasks:
        for group in task.groups:
            result = attempt(partial(_erase, group, task), partial(_problem, group, task))
            if isinstance(result, Failed):
                yield from (NotErased(result.failure, stored) for stored in group)
            else:
                yield from result


def _problem(group: Sequence[StoredObject], task: EraseTask, error: Exception) -> Problem:
    uri = group[0].uri
    remedy = None
    if isinstance(error, UnsupportedFile | EOFError | BadGzipFile):
        remedy = (
            f"Cannot determine whether {uri} contains rows to erase: the file {error}. Another program wrote or "
            "changed this file. Delete the file, or rewrite it with that program, and run the command again."
        )
    return Problem(f"Cannot erase rows from {uri}", "search or replace", uri, task.access, remedy)


def _erase(group: Sequence[StoredObject], task: EraseTask) -> list[Erased]:
    s3 = task.access.client("s3")
    try:
        match task.content:
            case "archive":
                return [_erase_lines(group[0], task, s3, RecordSearch(task.columns, task.ids).match_lines)]
            case "rejects":
                return _erase_rejects(group, task, s3)
            case "rows":
                return [_erase_rows(group[0], task, s3)]
    except Exception as error:
        # Another writer changed the object after it was listed.
        if is_changed(error) or any(_is_gone(error, stored, s3) for stored in group):
            return [Erased(stored, 0, is_gone=True) for stored in group]
        raise


def _is_gone(error: Exception, stored: StoredObject, s3: S3Client) -> bool:
    """Return whether an error means that the object, or the requested version of the object, no longer exists."""
    if stored.version is None:
        return is_missing(error, s3, stored.uri)
    return getattr(error, "response", {}).get("Error", {}).get("Code") in ("NoSuchKey", "NoSuchVersion", "404")


# --- Lines ----------------------------------------------------------------------------------------------------------

Find = Callable[[bytes], "NDArray[np.bool_]"]
"""A function that returns a mask: for each line of its argument, whether to erase the line. The argument consists of
whole lines, none of which is blank."""


def _erase_lines(stored: StoredObject, task: EraseTask, s3: S3Client, find: Find) -> Erased:
    """Count the lines of an object that `find` selects. If `task.write` is set, rewrite the object without them."""
    pieces = _pieces(stored, s3)
    first = next(pieces, b"")
    # The content determines the format, because other programs may omit the extension `.gz`.
    is_gzip = first.startswith(b"\x1f\x8b")
    content = chain([first], pieces)
    upload = _upload_over(stored, s3) if task.write and stored.version is None else None
    output = GzipUpload(upload, MEMBER_BYTES) if upload is not None and is_gzip else upload
    matches, has_other_lines = 0, False
    with rollback_on_error(*([] if upload is None else [upload.abort])):
        for lines in whole_lines(inflated(content) if is_gzip else content):
            kept, count = _without(lines, find, keeps_numbers=task.content == "archive")
            matches += count
            has_other_lines |= bool(kept.strip())
            if output is not None:
                output.write(kept)
        if upload is None or output is None:
            return Erased(stored, matches)
        # Keep objects of the archive and of the rejects even if they become empty. The archive's index references the
        # objects of the archive.
        is_removed = matches > 0 and task.content == "rows" and not has_other_lines
        if not matches or is_removed:
            upload.abort()
            return _remove(stored, matches, s3) if is_removed else Erased(stored, 0)
        _replace(output, upload, stored)
    return Erased(stored, matches, was_written=True)


def _remove(stored: StoredObject, matches: int, s3: S3Client) -> Erased:
    """Delete an object that contains only matching rows, if the object has not changed since it was read."""
    address = S3Address.parse(stored.uri)
    try:
        # Without the condition, rows that another writer stored under this key after the search would be lost.
        s3.delete_object(Bucket=address.bucket, Key=address.key, IfMatch=stored.etag)
    except s3.exceptions.ClientError as error:
        if not error.response["ResponseMetadata"].get("RetryAttempts") or _reload(stored, s3) is not None:
            raise
        # S3 may have executed an earlier request, whose response was lost. Or another writer has deleted the object,
        # and may have moved its rows.
        return Erased(stored, matches, was_written=True, was_removed=True, is_gone=True)
    return Erased(stored, matches, was_written=True, was_removed=True)


def _replace(output: Upload | GzipUpload, upload: HashedUpload, stored: StoredObject) -> None:
    """Close `output`, which writes to `upload`, so that the new content replaces the object.

    Raises the errors of the upload. For some of them, `is_changed` returns True: then another writer has changed the
    object.
    """
    s3 = upload.s3
    try:
        output.close()
    except s3.exceptions.ClientError:
        # If S3 executes the request, but its response is lost, botocore repeats the request. The object then is the new
        # one, so the repeated request does not meet its condition.
        if not _is_stored(upload, _reload(stored, s3)):
            raise
        upload.abort()


def _is_stored(upload: HashedUpload, present: StoredObject | None) -> bool:
    """Return whether the object that is now in S3 has the content of the upload."""
    if present is None or present.size != upload.written:
        return False
    digest = hashlib.sha256()
    for piece in _pieces(present, upload.s3):
        digest.update(piece)
    return digest.digest() == upload.sha256.digest()


def _upload_over(stored: StoredObject, s3: S3Client) -> HashedUpload:
    """Return an upload that replaces the object's content but keeps its metadata, headers and storage class.

    The upload fails if the object has changed since it was read.
    """
    address = S3Address.parse(stored.uri)
    # The metadata must belong to the version of the object that was read.
    head = s3.head_object(Bucket=address.bucket, Key=address.key, IfMatch=stored.etag)
    attributes: Any = {name: value for name, value in head.items() if name in _KEPT_ATTRIBUTES}
    if "Restore" in head:
        # An archived object can only be read while it is restored. The second search could not read a new one.
        attributes.pop("StorageClass", None)
    return HashedUpload(
        s3, stored.uri, deferred=False, metadata=head["Metadata"], if_match=stored.etag, attributes=attributes
    )


_KEPT_ATTRIBUTES = frozenset(
    (
        "CacheControl",
        "ContentDisposition",
        "ContentEncoding",
        "ContentLanguage",
        "ContentType",
        "Expires",
        "StorageClass",
        "WebsiteRedirectLocation",
    )
)
"""The attributes of an object that a rewrite keeps. S3 needs further permissions for tags, access lists and object
locks."""


def _pieces(stored: StoredObject, s3: S3Client) -> Iterator[bytes]:
    for start in range(0, stored.size, PIECE_BYTES):
        end = min(start + PIECE_BYTES, stored.size)
        yield _read(stored, s3, start, end)


def _read(stored: StoredObject, s3: S3Client, start: int, end: int) -> bytes:
    etag = stored.etag if stored.version is None else None  # Versions are immutable.
    return get(s3, stored.uri, start, end, etag, stored.version)


def _without(text: bytes, find: Find, *, keeps_numbers: bool) -> tuple[bytes, int]:
    """Return the text without the lines that `find` selects, and the number of these lines.

    If `keeps_numbers` is set, an empty line replaces each selected line, so that the other lines keep their line
    numbers.
    """
    lines = text.removesuffix(b"\n").split(b"\n")
    has_text = np.fromiter((bool(line.strip()) for line in lines), np.bool_, len(lines))
    dead = np.zeros(len(lines), np.bool_)
    if has_text.any():
        dead[has_text] = find(b"".join(line + b"\n" for line in compress(lines, has_text)))
    if not dead.any():
        return text, 0
    kept = [b"" if is_dead else line for line, is_dead in zip(lines, dead, strict=True) if keeps_numbers or not is_dead]
    # Only the last line may lack a newline. This function does not add one.
    ends_with_newline = text.endswith(b"\n") or dead[-1]
    return b"\n".join([*kept, b""] if ends_with_newline else kept), int(np.count_nonzero(dead))


# --- Rejects --------------------------------------------------------------------------------------------------------


class _RejectLine(msgspec.Struct, gc=False):
    """The fields of a dead letter (a rejected record) that erasure reads: see `rejects.writer.RejectLine`."""

    sequence: str | None = msgspec.field(default=None, name="sequenceNumber")
    raw_data: str | None = msgspec.field(default=None, name="rawData")
    column_name: str | None = None
    column_value: str | None = None


_REJECT = msgspec.json.Decoder(_RejectLine)


def _erase_rejects(group: Sequence[StoredObject], task: EraseTask, s3: S3Client) -> list[Erased]:
    """Rewrite the reject objects of a group without the lines of matching records.

    A record can have several reject lines, only one of which contains the record's text. The line with the text is
    needed to find the other lines, so this function erases it last. The user can therefore repeat an interrupted
    erasure.
    """
    dead = _DeadRecords(task)
    for stored in group:
        _erase_lines(stored, replace(task, write=False), s3, dead.collect)
    if not dead.are_found:
        return [Erased(stored, 0) for stored in group]
    # S3 replaces an object atomically, so one pass over a single object cannot stop between its lines.
    if len(group) == 1 or not task.write:
        return [_erase_lines(stored, task, s3, dead.lines) for stored in group]
    first_passes = [_erase_lines(stored, task, s3, dead.lines_without_text) for stored in group]
    results: list[Erased] = []
    for first in first_passes:
        # The first pass has replaced the object, so its ETag differs.
        stored = (_reload(first.object, s3) if first.was_written else None) or first.object
        last = _erase_lines(stored, task, s3, dead.lines)
        results.append(Erased(first.object, first.matches + last.matches, first.was_written or last.was_written))
    return results


def _reload(stored: StoredObject, s3: S3Client) -> StoredObject | None:
    """Return the object with its present ETag and size in S3, or None if it does not exist."""
    address = S3Address.parse(stored.uri)
    try:
        head = s3.head_object(Bucket=address.bucket, Key=address.key)
    except s3.exceptions.ClientError as error:
        if is_missing(error, s3, stored.uri):
            return None
        raise
    return StoredObject(stored.uri, head["ETag"], head["ContentLength"])


class _DeadRecords:
    """Finds the reject lines to erase from the objects of a group.

    Call `collect` for all objects first: it stores the sequence numbers of the records that contain an ID. Afterwards,
    `lines` and `lines_without_text` find the lines with these sequence numbers.
    """

    def __init__(self, task: EraseTask) -> None:
        self._search = RecordSearch(task.columns, task.ids)
        self._paths = {".".join(map(path_step, column.path)): column.path for column in task.columns}
        self.sequences: set[str] = set()
        self.are_found = False

    def collect(self, lines: bytes) -> NDArray[np.bool_]:
        """Store the sequence numbers of the records in these lines that contain an ID. Return a mask of their lines."""
        rejects = self._parse(lines)
        matches = self._matches(rejects)
        self.sequences |= {
            reject.sequence for reject, matching in zip(rejects, matches, strict=True) if matching and reject.sequence
        }
        self.are_found |= bool(matches.any())
        return matches

    def lines(self, lines: bytes) -> NDArray[np.bool_]:
        """Return a mask of the lines that contain an ID or belong to a collected record."""
        rejects = self._parse(lines)
        return self._matches(rejects) | np.array([reject.sequence in self.sequences for reject in rejects], np.bool_)

    def lines_without_text(self, lines: bytes) -> NDArray[np.bool_]:
        """Return a mask of the lines that belong to a collected record but do not contain the record's text."""
        rejects = self._parse(lines)
        return np.array([reject.raw_data is None and reject.sequence in self.sequences for reject in rejects], np.bool_)

    def _parse(self, lines: bytes) -> list[_RejectLine]:
        try:
            return [_REJECT.decode(line) for line in lines.split(b"\n") if line.strip()]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UnsupportedFile("contains a line that is not a rejected record") from error

    def _matches(self, rejects: Sequence[_RejectLine]) -> NDArray[np.bool_]:
        texts = [self._record(reject) for reject in rejects]
        matches = np.zeros(len(rejects), np.bool_)
        numbers = [number for number, text in enumerate(texts) if text]
        if numbers:
            matches[numbers] = self._search.match_lines(b"".join(texts[number] + b"\n" for number in numbers))
        return matches

    def _record(self, reject: _RejectLine) -> bytes:
        """Return the record of a reject line as a RECORD line, or empty bytes if the line contains no value to search.

        If the reject contains only the value of the searched column, the returned record contains only this value.
        """
        if reject.raw_data is not None:
            # In JSON, a newline is only white space between tokens. In a block of lines, it would end the line.
            return base64.b64decode(reject.raw_data).replace(b"\n", b" ").strip()
        path = self._paths.get(reject.column_name or "")
        if path is None or reject.column_value is None:
            return b""
        value = reject.column_value.encode().replace(b"\n", b" ")
        for key in reversed(path):
            value = object_of({key: Raw(value)})
        return _as_record(value)


# --- Rows -----------------------------------------------------------------------------------------------------------

_PARQUET_MAGIC = b"PAR1"


def _erase_rows(stored: StoredObject, task: EraseTask, s3: S3Client) -> Erased:
    """Search a data file of a table for matching rows. If `task.write` is set, rewrite the file without them."""
    start = _read(stored, s3, 0, min(len(_PARQUET_MAGIC), stored.size)) if stored.size else b""
    if start == _PARQUET_MAGIC:
        return _erase_parquet_rows(stored, task, s3)
    return _erase_lines(stored, task, s3, _RowSearch(task).match_lines)


class _RowSearch:
    """Finds matching rows in JSON Lines files.

    Ignores the case of keys, because writers may spell a key in different ways, and query engines ignore its case too.
    """

    def __init__(self, task: EraseTask) -> None:
        self._columns = task.columns
        self._ids = task.ids
        self._search = RecordSearch(task.columns, task.ids)
        steps = {re.escape(step.encode()) for column in task.columns for step in column.path}
        self._steps = re.compile(b'"(' + b"|".join(steps) + b')"', re.IGNORECASE)

    def match_lines(self, lines: bytes) -> NDArray[np.bool_]:
        """Return a mask of the matching lines. Raises UnsupportedFile if the text is not in the JSON Lines format."""
        if lines.lstrip()[:1] != b"{":
            raise UnsupportedFile("is neither Parquet nor JSON Lines")
        keys = {step.decode() for step in set(self._steps.findall(lines))}
        columns = dict.fromkeys(spelling for column in self._columns for spelling in _spellings(column, keys))
        # Collect the spellings of all lines so far, so that the search is built again only for a new one.
        if not columns.keys() <= set(self._columns):
            self._columns = (*dict.fromkeys((*self._columns, *columns)),)
            self._search = RecordSearch(self._columns, self._ids)
        # As RECORD lines, rows are searched by the same code as archived lines.
        return self._search.match_lines(
            b"".join(_as_record(line) + b"\n" for line in lines.split(b"\n") if line.strip())
        )


def _spellings(column: Field, keys: Iterable[str]) -> Iterator[Field]:
    """Yield the column with each spelling of its path that can be built from `keys`, ignoring case."""
    spellings_of_steps = [[key for key in keys if key.lower() == step.lower()] for step in column.path]
    for *parents, source in product(*spellings_of_steps):
        yield replace(column, source=source, parents=tuple(parents))


def _as_record(data: bytes) -> bytes:
    """Return a RECORD line whose data is `data`, the JSON text of a row."""
    return b'{"type":"RECORD","record":{"stream":"","emitted_at":0,"data":%b}}' % data


def _erase_parquet_rows(stored: StoredObject, task: EraseTask, s3: S3Client) -> Erased:
    etag = stored.etag if stored.version is None else None
    source = SourceFile(stored.uri, stored.size, UNKNOWN, etag=etag, version=stored.version)
    with StoredFile(source, s3) as content:
        file = OpenedFile(content)
        dead = _dead_rows(file, task)
        matches = int(np.count_nonzero(dead))
        if not matches or not task.write or stored.version is not None:
            return Erased(stored, matches)
        if dead.all():
            return _remove(stored, matches, s3)
        upload = _upload_over(stored, s3)
        with rollback_on_error(upload.abort):
            copy_rows(file, file.schema, dead, upload)
            _replace(upload, upload, stored)
    return Erased(stored, matches, was_written=True)


def _dead_rows(file: OpenedFile, task: EraseTask) -> NDArray[np.bool_]:
    """Return a mask of the rows of a Parquet file that contain one of the task's IDs."""
    dead = np.zeros(file.row_count, np.bool_)
    row = deleted_row(file.schema)
    for column in task.columns:
        paths = [_path_in(file.schema, column.path)]
        if row is not None and (path := _path_in(pa.schema([*row.type]), column.path)) is not None:
            paths.append([row.name, *path])
        for path in paths:
            if path is not None:  # None: the file lacks this column, so no row matches.
                # The IDs have the column's widest type, whatever the type in this file.
                dead |= matching_rows(file, path, arrow_type(widest(column.type)), task.ids)[0]
    return dead


def _path_in(schema: pa.Schema, path: Sequence[str]) -> Sequence[str] | None:
    """Return a column's path as the file's schema spells it, or None if the file lacks the column.

    Names are case-insensitive.
    """
    names: list[str] = []
    fields: list[pa.Field[Any]] = list(schema)
    for step in path:
        field = next((field for field in fields if field.name.lower() == step.lower()), None)
        if field is None:
            return None
        names.append(field.name)
        fields = list(field.type) if isinstance(field.type, pa.StructType) else []
    return names
