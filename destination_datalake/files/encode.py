"""The encoding job, as it runs on executors: segments are read, data files and rejects written, results returned."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.archive.objects import ArchivedObject, ArchiveLocation
from destination_datalake.archive.writer import ArchiveWriter
from destination_datalake.aws.access import Environment
from destination_datalake.aws.objects import ObjectFailed, get_or_none, naming_object, undone_on_failure
from destination_datalake.errors import ConfigError
from destination_datalake.files.block_tables import OrderedIds, first_id
from destination_datalake.files.ids import HashedIds
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.plan import (
    Encoded,
    EncodeTask,
    EncodeUnit,
    FilePlan,
    MalformedRecord,
    NotEncoded,
    UnitResult,
)
from destination_datalake.files.segments import (
    ArchivedLines,
    Content,
    LeftOut,
    LocalFile,
    Places,
    StagedSegment,
    contents,
)
from destination_datalake.files.suppression import suppressed
from destination_datalake.files.unit_files import PartitionedFileWriter, RollingFileWriter
from destination_datalake.protocol.frames import line_bounds
from destination_datalake.protocol.messages import MalformedLine
from destination_datalake.records.decoded import TRUNCATED, Decoded, RejectedLine, RowLines
from destination_datalake.records.decoder import BlockDecoder, blocks
from destination_datalake.records.search import RecordSearch
from destination_datalake.records.undeclared import SAMPLE_BYTES, undeclared_fields
from destination_datalake.records.values.numbers import ExactFloat
from destination_datalake.records.values.rules import Floats, path_step
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.rejects.line import RejectFormatter
from destination_datalake.rejects.writer import RejectWriter
from destination_datalake.schema.columns import field_at
from destination_datalake.schema.types import Field, Float32, Float64, List, Struct

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.files.plan import FilePlan
    from destination_datalake.protocol.frames import Frame


KEY_CHANGED = "DESTINATION_RECORD_KEY_CHANGED"
"""The reason of these rejects."""


def columns_to_read(plan: FilePlan) -> tuple[Field, ...]:
    """Return the columns of a plan as they are to be read, so that different numbers are different keys."""
    key = plan.dedup.key if plan.dedup is not None else ()
    return tuple(
        replace(column, type=ExactFloat())
        if column.name in key and isinstance(column.type, Float32 | Float64)
        else column
        for column in plan.columns
    )


class KeptKeys:
    """Refuses records if a value that deduplication needs was changed, here or by the source, which says so in their
    meta.

    Under a key that became null rows of different keys would replace each other, and so they would under one that was
    cut. Without its cursor a record would lose to any other of its key. A cursor that is cut, such as a time with
    nanoseconds, is kept: two cursors that are cut keep their order, or become equal. A null that was sent as such is a
    key like others. A record that deletes its row has little but its key: without the time of deletion it would replace
    the row by nulls.
    """

    def __init__(self, key: Sequence[str], others: Sequence[str]) -> None:
        """Guard these fields, named as the changes of their values name them (`ValueChange.field`).

        Those of `others` may be cut.
        """
        self._key = pa.array(key, pa.string())
        self._all = pa.array([*key, *others], pa.string())

    @classmethod
    def of(cls, plan: FilePlan) -> Self | None:
        """Return what guards the keys of a plan; None if its rows are not deduplicated."""
        dedup = plan.dedup
        if dedup is None:
            return None
        fields = {column.name: ".".join(map(path_step, column.path)) for column in plan.columns}
        others = [fields[name] for name in (dedup.cursor, dedup.deleted_at) if name is not None]
        return cls([fields[name] for name in dedup.key], others)

    def refuse(self, decoded: Decoded) -> Decoded:
        """Return the records without those that are refused; their lines are among the refused ones."""
        if decoded.changes is None:
            return decoded
        rows = self._changed(decoded.changes)
        if not len(rows):
            return decoded
        message = "the primary key, the cursor or the time of deletion cannot be kept as it was sent"
        rejected = [RejectedLine(decoded.lines[row], KEY_CHANGED, message) for row in rows.tolist()]
        kept = np.ones(decoded.rows, np.bool_)
        kept[rows] = False
        return replace(_with_rows(decoded, kept), rejected=[*decoded.rejected, *rejected])

    def _changed(self, changes: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers of the rows whose guarded values are not as they were sent, ascending."""
        entries = changes.flatten()
        field = entries.field("field")
        cut: Any = pc.equal(entries.field("change"), pa.scalar(TRUNCATED)).fill_null(False)
        of_key, of_any = pc.is_in(field, self._key), pc.is_in(field, self._all)
        wrong: Any = pc.or_(of_key, pc.and_not(of_any, cut))
        return np.unique(pc.list_parent_indices(changes).filter(wrong).to_numpy(False).astype(np.int64))


def _with_rows(decoded: Decoded, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> Decoded:
    """Return the records of these rows."""
    mask = pa.array(kept)
    rows = np.flatnonzero(kept)
    numbers = np.cumsum(kept) - 1
    changes: Any = None if decoded.changes is None else decoded.changes.filter(mask)
    return Decoded(
        decoded.extracted_at.filter(mask),
        [column.filter(mask) for column in decoded.columns],
        changes if changes is not None and len(changes.flatten()) else None,
        [each._replace(row=int(numbers[each.row])) for each in decoded.changed if kept[each.row]],
        decoded.rejected,
        _SomeLines(decoded.lines, rows),
        decoded.line_numbers[rows],
    )


class _SomeLines:
    """The lines of some of the rows."""

    def __init__(self, lines: RowLines, rows: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._lines = lines
        self._rows = rows

    def __getitem__(self, row: int) -> bytes:
        return self._lines[int(self._rows[row])]


def _ids_of(rule: LeftOut, s3: S3Client) -> HashedIds:
    """Return the ids of a rule. The latest few objects stay in memory. Raises ObjectFailed, ConfigError."""
    if (found := _read.pop(rule.uri, None)) is None:
        with naming_object("read who is left out from", rule.uri):
            if (content := get_or_none(s3, rule.uri)) is None:
                raise ConfigError(
                    f"{rule.uri} is gone, which tells whose records are left out. Restore it from a copy; or delete "
                    "the folder of this request, which ends it that they are."
                )
            found = HashedIds.of(content, rule.salt)
    _read[rule.uri] = found
    while len(_read) > _MOST_READ:
        del _read[next(iter(_read))]
    return found


_MOST_READ = 4
_read: dict[str, HashedIds] = {}


class LeavingOut:
    """Takes the lines of people who are left out of the contents of one unit, in their order."""

    def __init__(self, searches: Sequence[RecordSearch]) -> None:
        """Take out what one of the searches finds."""
        self.lines = 0
        """How many were taken out so far."""
        self._searches = searches
        self._all = self._left = 0

    @classmethod
    def of(cls, rules: Sequence[LeftOut], columns: Sequence[Field], s3: S3Client) -> Self | None:
        """Return what applies the rules; None if there are none for these columns, those of the unit's plan.

        Raises ObjectFailed, ConfigError.
        """
        searches = []
        for rule in rules:
            column = field_at(columns, rule.column.split("."))
            if column is not None and not isinstance(column.type, Struct | List):
                searches.append(RecordSearch((column,), _ids_of(rule, s3)))
        return cls(searches) if searches else None

    def parted(self, content: Content) -> tuple[Content, bytes]:
        """Return the content without their lines; and all of its lines as they were received, but theirs empty."""
        received = bytes(content.received(content.lines))
        if not received:
            return content, received
        octets = np.frombuffer(received, np.uint8)
        starts, ends = line_bounds(octets)
        is_left = ~np.logical_or.reduce([search.found(received) for search in self._searches])
        numbers = np.arange(self._all, self._all + len(ends)) if content.places is None else content.places.numbers
        content = replace(content, places=Places(self._left, numbers[is_left]))
        self._all += len(ends)
        self._left += len(numbers[is_left])
        self.lines += len(ends) - len(numbers[is_left])
        if is_left.all():
            return content, received
        kept = np.repeat(is_left, ends - starts + 1)
        lines = np.frombuffer(content.lines, np.uint8)[kept].tobytes()  # Flat lines are as long as they were received.
        kept[ends] = True
        return replace(content, lines=lines), octets[kept].tobytes()


def encode(tasks: Iterable[EncodeTask]) -> Iterator[UnitResult]:
    """Encode every unit of the tasks; yield a result for each. A unit that fails does not stop the others."""
    for task in tasks:
        for unit in task.units:
            result = attempt(partial(_result, unit, task.access), partial(_problem, unit, task.access))
            yield _not_encoded(unit, result, task.access) if isinstance(result, Failed) else result


def _result(unit: EncodeUnit, access: AwsAccess) -> Encoded | MalformedRecord:
    try:
        return _encoded(unit, access)
    except MalformedLine as error:
        record = unit.segments[0].first_record + error.line_number - 1
        return MalformedRecord(unit.stream, record, error.length, error.reason)


def _encoded(unit: EncodeUnit, access: AwsAccess) -> Encoded:
    s3 = access.client("s3")
    # JSON cannot express NaN and infinities.
    decoder = BlockDecoder(columns_to_read(unit.plan), Floats.FINITE if unit.plan.format == "jsonl" else Floats.ANY)
    # An attempt that Spark has given up may still run, on another machine for long: its objects have names of
    # their own, or it would overwrite or delete those of the next attempt.
    attempt = f"{unit.name}-{secrets.token_hex(4)}"
    is_plain = unit.plan.partitioning is None and unit.plan.sort_order is None
    writer = RollingFileWriter if is_plain else PartitionedFileWriter
    of_table = s3 if unit.plan.lent is None else unit.plan.lent.client("s3")
    replayed = Replayed.of(unit)
    ids = OrderedIds(first_id(unit.ingest_order) if replayed is None else replayed.lines.first_id)
    files = writer(attempt, unit.plan, of_table, ids=ids)
    keys = KeptKeys.of(unit.plan)
    now = time.time_ns() // 1_000_000
    formatter = RejectFormatter(unit.rejects, unit.stream, unit.plan.columns, unit.name, now)
    rejects = RejectWriter(formatter, unit.rejects, attempt, s3)
    archive = None if unit.archive is None else _archive_of(unit, unit.archive, attempt, ids, s3)
    leaving_out = LeavingOut.of(unit.left_out, unit.plan.columns, s3)
    undeclared: tuple[str, ...] | None = None
    with undone_on_failure(files.abort, rejects.abort, *(() if archive is None else (archive.abort,))):
        for content in contents(unit.segments, access):
            left = content
            if replayed is not None:
                replayed.left_out += content.erased
            if leaving_out is not None:
                left, received = leaving_out.parted(content)
                if archive is not None:
                    archive.write(received)
            frame = left.frame
            for block in blocks(left.lines, unit.plan.columns):
                if archive is not None and leaving_out is None:
                    archive.write(left.received(block))
                if undeclared is None:
                    first = block if frame is None else _first_received(block, frame)
                    undeclared = undeclared_fields(first, unit.plan.columns)
                for each in _decoded(decoder, block, left):
                    decoded = each if replayed is None else replayed.kept(each)
                    if keys is not None:
                        decoded = keys.refuse(decoded)
                    rejects.write(decoded, files.write(decoded))
        archived = None if archive is None else archive.close()
        rejected = rejects.close()
        written = files.close()
    counts = rejects.counts()
    left_out = 0 if leaving_out is None else leaving_out.lines
    if replayed is not None:
        left_out += replayed.left_out
    elif left_out:
        counts, left_out = RejectCounts.total([counts, suppressed(left_out)]), 0
    return Encoded(unit.stream, tuple(written), counts, tuple(rejected), undeclared or (), archived, left_out)


def _archive_of(
    unit: EncodeUnit, location: ArchiveLocation, attempt: str, ids: OrderedIds, s3: S3Client
) -> ArchiveWriter:
    archived = ArchivedObject(
        location.name(attempt),
        lines=sum(segment.records for segment in unit.segments),
        bytes=sum(segment.bytes for segment in unit.segments),
        first_record=unit.segments[0].first_record,
        first_id=ids.first.hex(),
    )
    return ArchiveWriter(location, archived, s3, unit.plan.held_in)


@dataclass(slots=True)
class Replayed:
    """The one archived object of a unit: its rows have the ids that they had. `left_out` are lines without a row."""

    lines: ArchivedLines
    left_out: int = 0

    @classmethod
    def of(cls, unit: EncodeUnit) -> Self | None:
        """Return what a unit replays; None if it encodes what a sync has received."""
        match unit.segments:
            case (StagedSegment(location=ArchivedLines() as lines),):
                return cls(lines)
        return None

    def kept(self, decoded: Decoded) -> Decoded:
        """Return the records that are to be replayed, by the numbers that their lines have in the object."""
        only = self.lines.only
        if only is None:
            return decoded
        wanted = np.array([number in only for number in decoded.line_numbers.tolist()], np.bool_)
        if wanted.all():
            return decoded
        self.left_out += int(np.count_nonzero(~wanted))
        return _with_rows(decoded, wanted)


def _decoded(decoder: BlockDecoder, block: memoryview, content: Content) -> Iterator[Decoded]:
    """Decode lines of a content. They have the numbers that they had before others were taken out."""
    places = content.places
    try:
        for decoded in decoder.decode(block, content.frame, mixed=content.mixed):
            if places is None:
                yield decoded
            else:
                yield replace(decoded, line_numbers=places.of(decoded.line_numbers))
    except MalformedLine as error:
        if places is None:
            raise
        [number] = places.of(np.array([error.line_number - 1])).tolist()
        raise MalformedLine(number + 1, error.length, error.reason) from None


def _first_received(block: memoryview, frame: Frame) -> bytes:
    """Return the first lines of a block as received."""
    start = bytes(block[:SAMPLE_BYTES])
    return frame.restored(start[: start.rfind(b"\n") + 1])


def _problem(unit: EncodeUnit, access: AwsAccess, error: Exception) -> Problem:
    headline = f"Stream {unit.stream} could not be written"
    if isinstance(error, ObjectFailed):
        return Problem(headline, error.doing, error.uri, access)
    return Problem(headline, "write data files under", unit.plan.folder, unit.plan.lent or access)


def _not_encoded(unit: EncodeUnit, failed: Failed, access: AwsAccess) -> NotEncoded:
    """Say where a failure was, if not on the driver's machine: network and role may be others there."""
    if all(isinstance(segment.location, LocalFile) for segment in unit.segments):
        return NotEncoded(failed.failure, unit.stream)
    message = f"{failed.failure.message} This was on an executor, on host {socket.gethostname()}."
    denied = failed.failure.missing is not None or "credentials" in failed.failure.message
    if denied and isinstance(access.identity, Environment):
        message = message.replace("the connector's identity", "the executors' role")
        message += (
            " Executors have the credentials that they find there: give them a role that may read and write under "
            "bucket_prefix, or set spark.executor_credentials to session."
        )
    return NotEncoded(replace(failed.failure, message=message), unit.stream)
