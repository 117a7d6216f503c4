"""One block of record lines as Arrow columns, each column read in the way that its values have been found to need.

Arrow parses the block in C++ against an explicit schema. It gives no half answers: one value that it does not take and
the whole block is refused. So a column with such values is taken from Arrow: msgspec cuts its JSON texts out of the
lines, they are turned into values in bulk, and only those that are not plain go through the careful path (`coerce`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.records.arrow_json import (
    REFUSALS,
    ReadStrategy,
    arrow_reads,
    conform,
    from_texts,
    parsed,
    read_type,
)
from destination_datalake.records.changes import Coercer, Floats, ValueChange
from destination_datalake.records.envelope import BlockRefused, Lines, RawValueDecoder, require, text_of, texts_of
from destination_datalake.records.record import LATEST_EMITTED, coercers, emitted_at, source_changes
from destination_datalake.records.values.canonical import PLAIN, Bulk, parse_vectorised
from destination_datalake.records.values.shape_filter import usual
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import CHANGE
from destination_datalake.schema.narrowest import widest
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Field,
    Json,
    List,
    String,
    Struct,
)

_CHANGE_TYPE: Any = arrow_type(CHANGE)
CHANGES_TYPE = arrow_type(List(CHANGE))

_SECONDS_BELOW = 100_000_000_000
"""An `emitted_at` below this many "milliseconds" (March 1973) is in seconds, as PyAirbyte sends it."""

BLOCK_CHANGES = 50_000
"""So many changed values, or those of one record, are kept at a time: a block with more is read in parts."""


class BlockCrowded(Exception):
    """So many values of a block's records had to be changed that it is to be read in parts."""


class Notes:
    """What had to be changed, by row. Raises BlockCrowded when that is too much for a block of several rows."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._by_row: dict[int, list[ValueChange]] = {}
        self._count = 0

    def careful(self, row: int, raw: bytes, coerce: Coercer) -> Any:
        """The value that a coercer makes of a JSON text of this row."""
        changes = self._by_row.get(row, [])
        before = len(changes)
        value = coerce(raw, changes)
        if len(changes) != before:
            self._by_row[row] = changes
            self._count += len(changes) - before
            if self._count > BLOCK_CHANGES and self._rows > 1:
                raise BlockCrowded
        return value

    def in_order(self) -> list[tuple[int, list[ValueChange]]]:
        """The rows that have any, ascending."""
        return sorted(self._by_row.items())


_MOST_ODD = 1 / 16
"""The share of a column's texts that may be odd before cutting all of them out is cheaper than each out of its line."""


class ChangedRow(NamedTuple):
    """A row of which values could not be kept as they were: the record's line and what was done, never nothing."""

    row: int
    line: bytes
    changes: Sequence[ValueChange]


class RefusedLine(NamedTuple):
    """A line whose record could not become a row. `reason` is a code; `message` quotes nothing of the line."""

    line: bytes
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records as columns, every array as long as there are rows.

    `extracted_at` is timestamp[us, UTC]. `columns` are as wide as can be (integers 64 bit, floats double); what a file
    stores is decided later. `changes` is None where no record has any. `changed` are the rows changed here, in order;
    `refused` the lines that are no rows.
    """

    extracted_at: pa.Array[Any]
    columns: Sequence[pa.Array[Any]]
    changes: pa.Array[Any] | None
    changed: Sequence[ChangedRow] = ()
    refused: Sequence[RefusedLine] = ()

    @property
    def rows(self) -> int:
        """How many records."""
        return len(self.extracted_at)


class BlockReader:
    """Reads blocks for some columns, each in its own way, and the envelope natively or cut out of the lines."""

    def __init__(
        self, columns: Sequence[Field], readings: Sequence[ReadStrategy], envelope: ReadStrategy, floats: Floats
    ) -> None:
        self._columns = [
            _Column(column, widest(column.type), reading, coercer)
            for column, reading, coercer in zip(columns, readings, coercers(columns, floats), strict=True)
        ]
        self._envelope = envelope
        self._record_type = _record_type([c for c in self._columns if c.reading is not ReadStrategy.RAW_JSON], envelope)
        self._cut = [column for column in self._columns if column.reading is ReadStrategy.RAW_JSON]
        self._cutter = RawValueDecoder([c.field.source for c in self._cut])
        self._cuts = bool(self._cut) or envelope is ReadStrategy.RAW_JSON

    def read(self, block: bytes | memoryview) -> Decoded:
        """Read whole lines, each ended by a newline, UTF-8 throughout.

        Raises BlockRefused where something in them needs to be read in another way, BlockCrowded where they are to be
        read in parts, and RecordRefused (only where the envelope is cut) for a line that is no record.
        """
        try:
            return self._read(block)
        except REFUSALS as error:
            raise BlockRefused from error

    def _read(self, block: bytes | memoryview) -> Decoded:
        record = parsed(block, pa.field("record", self._record_type))
        data = record.field("data")
        require(data.null_count == 0)
        cut = self._cutter.records(block) if self._cuts else []
        require(not self._cuts or len(cut) == len(record))
        notes = Notes(len(record))
        lines = Lines(block, len(record))
        columns = [
            column.from_json(texts_of(self._cutter.texts(cut, column.field.source)), notes)
            if column.reading is ReadStrategy.RAW_JSON
            else column.from_arrow(data.field(column.field.source), lines, notes)
            for column in self._columns
        ]
        if self._envelope is ReadStrategy.RAW_JSON:
            extracted_at = timestamps(pa.array([emitted_at(bytes(r.emitted_at)) for r in cut], pa.int64()))
            changes = change_lists([source_changes(bytes(r.meta)) for r in cut])
        else:
            extracted_at = _extracted_at(record.field("emitted_at"))
            changes = record.field("meta").field("changes")
        changed = tuple(ChangedRow(row, lines[row], ours) for row, ours in notes.in_order())
        return Decoded(extracted_at, columns, _changes(changes, changed), changed)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column and how it is read. `type` is as wide as can be; `coerce` is the careful path of one value."""

    field: Field
    type: ColumnType
    reading: ReadStrategy
    coerce: Coercer

    def from_arrow(self, array: Any, lines: Lines, notes: Notes) -> Any:
        """The values, from what Arrow read; of an odd one the text is taken from its line, if there are few of them."""
        if type(self.type) in PLAIN and pa.types.is_string(array.type) and not isinstance(self.type, String):
            read = parse_vectorised(array, self.type)
            require(read.odd is None or read.odd.sum().as_py() <= len(array) * _MOST_ODD)
            return self._mended(read, lambda row: text_of(self.field.source, lines[row]), notes)
        return conform(array, self.type)

    def from_json(self, texts: Any, notes: Notes) -> Any:
        """The values, from their JSON texts."""
        match self.type:
            case Json():
                return texts
            case Struct() | List() if arrow_reads(self.type):
                return self._nested(texts, notes)
            case Boolean():
                # With their quotes on: the string "true" is no boolean.
                return self._mended(parse_vectorised(texts, self.type), lambda row: texts[row].as_py().encode(), notes)
            case Struct() | List():
                return self._one_by_one(enumerate(texts.to_pylist()), notes)
            case _:
                # The text of a string without escapes is its content; a number needs no quotes to be one.
                bare = pc.ascii_trim(texts, characters='"')
                return self._mended(parse_vectorised(bare, self.type), lambda row: texts[row].as_py().encode(), notes)

    def _nested(self, texts: Any, notes: Notes) -> Any:
        """Objects and lists: Arrow reads those that look as usual, together; the others are read one by one."""
        is_usual = usual(self.type)
        everything = ["null" if text is None else text for text in texts.to_pylist()]
        mask = np.fromiter(map(is_usual, everything), np.bool_, len(everything))
        mask |= texts.is_null().to_numpy(False)
        try:
            read = from_texts([*compress(everything, mask)], self.type)
        except (BlockRefused, *REFUSALS):
            return self._one_by_one(enumerate(texts.to_pylist()), notes)
        odd = np.flatnonzero(~mask)
        if not len(odd):
            return read
        careful = self._one_by_one(((row, everything[row]) for row in odd.tolist()), notes)
        places = np.argsort(np.concatenate([np.flatnonzero(mask), odd]))
        return pa.concat_arrays([read, careful]).take(pa.array(places))

    def _one_by_one(self, texts: Iterable[tuple[int, str | None]], notes: Notes) -> Any:
        values = [notes.careful(row, text.encode(), self.coerce) if text else None for row, text in texts]
        return pa.array(values, arrow_type(self.type))

    def _mended(self, read: Bulk, json_text: Callable[[int], bytes], notes: Notes) -> pa.Array[Any]:
        values, odd = read
        if odd is None:
            return values
        rows: Any = pc.indices_nonzero(odd).to_pylist()
        careful = pa.array([notes.careful(row, json_text(row), self.coerce) for row in rows], values.type)
        replaced: pa.Array[Any] = pc.replace_with_mask(values, odd, careful)
        return replaced


def timestamps(milliseconds: pa.Array[Any]) -> pa.Array[Any]:
    """Milliseconds since 1970 (int64) as timestamp[us, UTC]."""
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def change_lists(rows: Sequence[Sequence[ValueChange]]) -> pa.Array[Any]:
    """The changes of each row, as CHANGES_TYPE."""
    entries = [change for changes in rows for change in changes]
    members = [[getattr(change, name) for change in entries] for name in ("field", "change", "reason")]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    arrays = [pa.array(values, pa.string()) for values in members]
    return _lists(pa.array(offsets), pa.StructArray.from_arrays(arrays, fields=list(_CHANGE_TYPE)))


# --- The envelope -------------------------------------------------------------------------------------------------


def _record_type(columns: Sequence[_Column], envelope: ReadStrategy) -> pa.StructType:
    data = pa.struct([pa.field(c.field.source, read_type(c.type, c.reading)) for c in columns])
    fields: list[pa.Field[Any]] = [pa.field("data", data)]
    if envelope is ReadStrategy.NATIVE:
        meta = pa.struct([pa.field("changes", CHANGES_TYPE)])
        fields += [pa.field("emitted_at", pa.int64()), pa.field("meta", meta)]
    return pa.struct(fields)


def _extracted_at(emitted: Any) -> pa.Array[Any]:
    """From `emitted_at` in milliseconds, or seconds where the number is too small for milliseconds."""
    bounds = pc.min_max(emitted)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    require(emitted.null_count == 0 and low > -_SECONDS_BELOW and high <= LATEST_EMITTED)
    if low < _SECONDS_BELOW:
        in_seconds = pc.less(emitted, pa.scalar(_SECONDS_BELOW))
        emitted = pc.if_else(in_seconds, pc.multiply(emitted, pa.scalar(1000)), emitted)
    return timestamps(emitted)


def _changes(source: Any, changed: Sequence[ChangedRow]) -> pa.Array[Any] | None:
    """The source's own changes by row, then ours; None when there are none at all."""
    reported = source.flatten()
    require(reported.null_count == 0)
    if not changed:
        # By its offsets a null list has nothing in it, so without a mask it is an empty one.
        return _lists(source.offsets, source.values) if len(reported) else None
    theirs = source.to_pylist() if len(reported) else [None] * len(source)
    lists = [[ValueChange(**entry) for entry in entries or ()] for entries in theirs]
    for row, _, ours in changed:
        lists[row] += ours
    return change_lists(lists)


def _lists(offsets: Any, entries: Any) -> pa.Array[Any]:
    return pa.ListArray.from_arrays(offsets, entries, type=CHANGES_TYPE)
