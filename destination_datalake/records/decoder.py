"""Decode blocks of RECORD lines to Arrow columns, including irregular lines.

Nearly all blocks match their schema, and are read in C++ (`block`). If the reader refuses a block, it is adapted to the
block, and keeps the new strategies. Irregular lines (not JSON for msgspec, not UTF-8, numbers beyond a double) are
separated from the block and read one by one.

If flat lines (`protocol.frames`) are refused, the original lines are restored and read instead.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.protocol.frames import Frame, line_bounds
from destination_datalake.protocol.messages import MalformedLine, require_records
from destination_datalake.records.block import (
    BLOCK_CHANGES,
    FEW_LINES,
    BlockChangesExceeded,
    BlockReader,
    ColumnReader,
    halves,
    timestamps,
)
from destination_datalake.records.decoded import (
    ChangedRow,
    Decoded,
    LineNumbers,
    RejectedLine,
    change_lists,
)
from destination_datalake.records.record import CoercedRecord, RecordLine, RegularRecord, RejectedRecord, record_coercer
from destination_datalake.records.values.rules import Floats, SchemaMismatch
from destination_datalake.schema.columns import RecordFields
from destination_datalake.schema.types import ColumnType, Field, List, Struct

BLOCK_BYTES = 8 * 1024 * 1024
"""Maximum size of a block, which is parsed at a time, unless a single line is longer."""

BLOCK_CELLS = 2_000_000
"""Maximum number of values of a block with more than one line. Absent values count too: each takes about 20 bytes."""

_SHORTEST_LINE = len(b'{"type":"RECORD","record":{"stream":"","data":{},"emitted_at":0}}')
_NEWLINE = 10

_MAX_FLAT_REFUSALS = 8
"""Maximum number of consecutive refused blocks of flat lines. Later blocks are restored without trying."""


class BlockDecoder:
    """Decodes blocks of RECORD lines for one stream's columns. Remembers the strategies that the columns need."""

    def __init__(self, columns: Sequence[Field], floats: Floats = Floats.ANY) -> None:
        self._record = RecordFields.of(columns)
        self._floats = floats
        self._reader = BlockReader([ColumnReader.of(field, floats) for field in self._record.fields])
        self._flat_reader: BlockReader | None = None
        self._flat_refusals = 0
        self._filters: Set[LineFilter] = frozenset()
        self._lines = 0

    @cached_property
    def _coerce(self) -> Callable[[bytes], CoercedRecord]:
        return record_coercer(self._record.fields, self._floats)

    def decode(
        self, block: bytes | memoryview, frame: Frame | None = None, *, mixed: bool = False, has_empty: bool = False
    ) -> Iterator[Decoded]:
        """Decode whole lines, each with a newline. The yielded parts together have every line once.

        With a frame the lines are flat, or some of them if they are `mixed`. With `has_empty`, empty lines are skipped,
        but counted. Records of irregular lines may precede others; `Decoded.line_numbers` has the original order.
        Raises MalformedLine for a flat line that is not a record, with its number (from 1) among all decoded lines.
        """
        first = self._lines
        numbers: LineNumbers | None = None
        if has_empty:
            block, numbers, lines = _without_empty_lines(block)
            self._lines += lines - len(numbers)
            if not len(numbers):
                return
        try:
            for decoded in self._in_parts(block) if frame is None else self._framed(block, frame, mixed=mixed):
                self._lines += decoded.rows + len(decoded.rejected)
                columns = _flatten(decoded.columns, self._record)
                in_block = decoded.line_numbers if numbers is None else numbers[decoded.line_numbers]
                yield replace(decoded, columns=columns, line_numbers=in_block + first)
        except MalformedLine as error:
            number = error.line_number if numbers is None else int(numbers[error.line_number - 1]) + 1
            raise MalformedLine(first + number, error.length, error.reason) from None

    def _framed(self, block: bytes | memoryview, frame: Frame, *, mixed: bool) -> Iterator[Decoded]:
        """Decode lines of which some are flat. Line numbers are relative to the block."""
        flat: tuple[bytes | memoryview, LineNumbers | None] = (block, None)
        not_flat: tuple[bytes, LineNumbers | None] = (b"", None)
        if mixed:
            flat, not_flat = frame.split(block)
            if not flat[0]:
                yield from self._in_parts(block)
                return
        decoded = self._decode_flat(flat[0], frame)
        if decoded is None:
            received = frame.restored(block)
            require_records(received, frame)
            yield from self._in_parts(received)
            return
        yield decoded if flat[1] is None else replace(decoded, line_numbers=flat[1])
        yield from self._in_parts(*not_flat)

    def _decode_flat(self, lines: bytes | memoryview, frame: Frame) -> Decoded | None:
        """Decode flat lines; return None if a value requires the original lines."""
        if self._reader.is_whole or self._filters or self._flat_refusals >= _MAX_FLAT_REFUSALS or not _is_utf8(lines):
            return None
        reader = self._flat_reader
        if reader is None or reader.frame != frame or reader.columns is not self._reader.columns:
            reader = self._flat_reader = BlockReader(self._reader.columns, frame=frame)
        try:
            decoded = reader.read(lines)
        except (SchemaMismatch, BlockChangesExceeded):
            self._flat_refusals += 1
            return None
        self._flat_refusals = 0
        return decoded

    def _in_parts(self, block: bytes | memoryview, numbers: LineNumbers | None = None) -> Iterator[Decoded]:
        """Decode irregular lines one by one, and all others together. `numbers` are as in `_decoded`."""
        filters = self._filters if _is_utf8(block) else self._filters | {_not_utf8}
        if not filters:
            if block:
                yield from self._decoded(block, numbers)
            return
        parts = self._separate(bytes(block), filters, numbers)
        yield from self._decode_one_by_one(parts.irregular, parts.irregular_numbers)
        if parts.regular:
            yield from self._decoded(parts.regular, parts.regular_numbers)

    def _decoded(self, text: bytes | memoryview, numbers: LineNumbers | None) -> Iterator[Decoded]:
        """Decode lines with these numbers in their block; None for a whole block. Adapt the reader if necessary."""
        while True:
            try:
                decoded = self._reader.read(text)
                yield decoded if numbers is None else replace(decoded, line_numbers=_row_numbers(numbers, decoded.rows))
                return
            except BlockChangesExceeded:
                yield from self._decode_halves(bytes(text), numbers)
                return
            except (SchemaMismatch, RejectedRecord):
                adapted = self._reader.adapted(bytes(text))
                if adapted is None:
                    break
                self._reader = adapted
        block = bytes(text)
        parts = self._separate(block, _LINE_FILTERS, numbers)
        if parts.irregular:
            yield from self._decode_one_by_one(parts.irregular, parts.irregular_numbers)
            if parts.regular:
                yield from self._decoded(parts.regular, parts.regular_numbers)
        elif block.count(b"\n") <= FEW_LINES:
            yield from self._decode_one_by_one(block.split(b"\n")[:-1], parts.regular_numbers)
        else:
            yield from self._decode_halves(block, numbers)

    def _decode_halves(self, block: bytes, numbers: LineNumbers | None) -> Iterator[Decoded]:
        numbers = _all_numbers(block) if numbers is None else numbers
        first, second = halves(block)
        middle = first.count(b"\n")
        yield from self._decoded(first, numbers[:middle])
        yield from self._decoded(second, numbers[middle:])

    def _separate(self, block: bytes, filters: Set[LineFilter], numbers: LineNumbers | None) -> _Separated:
        """Separate the irregular lines from a block.

        Filters with matches are applied to the next block before it is read.
        """
        lines = block.split(b"\n")[:-1]
        numbers = _all_numbers(block) if numbers is None else numbers
        masks = {line_filter: line_filter(lines) for line_filter in filters}
        self._filters = frozenset(line_filter for line_filter, mask in masks.items() if mask.any())
        if not self._filters:
            return _Separated(block, numbers, [], numbers[:0])
        irregular = np.logical_or.reduce([*masks.values()])
        regular = b"\n".join([*compress(lines, ~irregular), b""])
        return _Separated(regular, numbers[~irregular], [*compress(lines, irregular)], numbers[irregular])

    # --- One by one ---

    def _decode_one_by_one(self, lines: Sequence[bytes], numbers: LineNumbers) -> Iterator[Decoded]:
        """Decode each line alone. Yields the rows after every BLOCK_CHANGES changed values, and at the end."""
        rows: list[CoercedRecord] = []
        kept: list[int] = []
        changed: list[ChangedRow] = []
        rejected: list[RejectedLine] = []
        changes = 0
        for number, line in enumerate(lines):
            try:
                row = self._coerce(line)
            except RejectedRecord as error:
                rejected.append(RejectedLine(line, error.reason, str(error)))
                continue
            if new_changes := row.changes[row.reported :]:
                changed.append(ChangedRow(len(rows), line, new_changes))
                changes += len(new_changes)
            rows.append(row)
            kept.append(number)
            if changes > BLOCK_CHANGES:
                yield _with_lines(self._from_rows(rows, changed, rejected), lines, numbers, kept)
                rows, kept, changed, rejected, changes = [], [], [], [], 0
        if rows or rejected:
            yield _with_lines(self._from_rows(rows, changed, rejected), lines, numbers, kept)

    def _from_rows(
        self, rows: Sequence[CoercedRecord], changed: Sequence[ChangedRow], rejected: Sequence[RejectedLine]
    ) -> Decoded:
        columns = [
            pa.array([row.values[index] for row in rows], column.rules.arrow_type)
            for index, column in enumerate(self._reader.columns)
        ]
        milliseconds = pa.array([row.emitted_at for row in rows], pa.int64())
        changes = change_lists(len(rows), enumerate(row.changes for row in rows))
        has_any = any(row.changes for row in rows)
        return Decoded(timestamps(milliseconds), columns, changes if has_any else None, changed, rejected)


# --- Cutting a segment ----------------------------------------------------------------------------------------------


def blocks(
    content: mmap.mmap | bytes | bytearray, columns: Sequence[Field], cells: int = BLOCK_CELLS
) -> Iterator[memoryview]:
    """Yield blocks of whole lines, without a copy, each of about BLOCK_BYTES and at most `cells` values."""
    max_lines = max(1, cells // max(1, _leaves(columns)))
    text = memoryview(content).toreadonly()
    start = 0
    while start < len(text):
        end = content.rfind(b"\n", start, start + BLOCK_BYTES) + 1 or content.find(b"\n", start) + 1 or len(text)
        yield from _split_lines(text[start:end], max_lines)
        start = end


def _split_lines(block: memoryview, max_lines: int) -> Iterator[memoryview]:
    if len(block) > max_lines * _SHORTEST_LINE:
        is_end = np.frombuffer(block, np.uint8) == _NEWLINE
        if np.count_nonzero(is_end) > max_lines:
            start = 0
            for end in (np.flatnonzero(is_end)[max_lines - 1 :: max_lines] + 1).tolist():
                yield block[start:end]
                start = end
            block = block[start:]
    if block:
        yield block


def _leaves(fields: Sequence[Field]) -> int:
    return sum(_leaves_in(field.type) for field in fields)


def _leaves_in(type_: ColumnType) -> int:
    match type_:
        case Struct(fields):
            return _leaves(fields)
        case List(element):
            return _leaves_in(element)
    return 1


def _flatten(arrays: Sequence[Any], record: RecordFields) -> list[Any]:
    """Return the columns, given the record's fields. The fields of a null object are null.

    Columns may be fields of objects (`nested: flatten`). An object is first read as a struct, by the rules of objects.
    """
    # Not recursive: a nested recursive function is a reference cycle, which keeps the arrays until garbage collection.
    fields_of: dict[tuple[int, ...], list[Any]] = {(): [*arrays]}
    for position in record.positions:
        for depth in range(1, len(position)):
            if (parent := position[:depth]) not in fields_of:
                # `flatten` applies the struct's nulls to its fields.
                fields_of[parent] = fields_of[parent[:-1]][parent[-1]].flatten()
    return [fields_of[position[:-1]][position[-1]] for position in record.positions]


# --- Line numbers ---------------------------------------------------------------------------------------------------


class _Separated(NamedTuple):
    """The regular and the irregular lines of a block, each with their line numbers in the block."""

    regular: bytes
    regular_numbers: LineNumbers
    irregular: list[bytes]
    irregular_numbers: LineNumbers


def _without_empty_lines(block: bytes | memoryview) -> tuple[bytes, LineNumbers, int]:
    """Return the non-empty lines, their numbers in the block, and the number of all lines."""
    octets = np.frombuffer(block, np.uint8)
    starts, ends = line_bounds(octets)
    return np.delete(octets, ends[starts == ends]).tobytes(), np.flatnonzero(starts < ends), len(ends)


def _all_numbers(block: bytes) -> LineNumbers:
    return np.arange(block.count(b"\n"))


def _row_numbers(numbers: LineNumbers, rows: int) -> LineNumbers:
    """Return the line numbers of the rows. They are consecutive if a line is blank and another one has two records."""
    return numbers if len(numbers) == rows else np.arange(rows) + numbers[0]


def _with_lines(decoded: Decoded, lines: Sequence[bytes], numbers: LineNumbers, kept: Sequence[int]) -> Decoded:
    """Return the rows with their lines and line numbers; `kept` are the indexes of these lines."""
    return replace(decoded, lines=[lines[number] for number in kept], line_numbers=numbers[np.array(kept, int)])


def _is_utf8(block: bytes | memoryview) -> bool:
    """Return whether the bytes are valid UTF-8. Arrow's JSON parser does not check it."""
    # A string array with one value, the block: Arrow validates it without a copy.
    offsets = pa.py_buffer(np.array([0, len(block)], np.int32).data)
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


# --- Irregular lines ------------------------------------------------------------------------------------------------

Mask = np.ndarray[Any, np.dtype[np.bool_]]

LineFilter = Callable[[Sequence[bytes]], Mask]
"""Returns a mask of the irregular lines."""

_REGULAR_LINE = msgspec.json.Decoder(RecordLine[RegularRecord])


def _not_a_record(lines: Sequence[bytes]) -> Mask:
    """Return a mask of lines that are not JSON, or not a record."""
    return ~np.fromiter(map(_is_record, lines), np.bool_, len(lines))


def _is_record(line: bytes) -> bool:
    try:
        _REGULAR_LINE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _not_utf8(lines: Sequence[bytes]) -> Mask:
    """Return a mask of lines that are not UTF-8."""
    return ~np.fromiter(map(_is_text, lines), np.bool_, len(lines))


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _maybe_beyond_double(lines: Sequence[bytes]) -> Mask:
    """Return a mask of lines that may have a number beyond a double: Arrow rejects it even in an ignored field."""
    texts: Any = pa.array(lines, pa.binary())
    mask: Mask = pc.match_substring_regex(texts, _BEYOND_DOUBLE).to_numpy(False)
    return mask


_BEYOND_DOUBLE = r"[0-9][eE]\+?[0-9]{3}|[0-9]{300}"
_LINE_FILTERS: Set[LineFilter] = frozenset({_not_a_record, _maybe_beyond_double})
