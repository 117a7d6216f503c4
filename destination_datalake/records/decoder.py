"""From blocks of record lines to Arrow columns, whatever the lines hold.

Nearly all blocks are as their schema says and are read in C++ (`block`). When one is refused, its reader is adapted to
it from then on. Irregular lines (not JSON to msgspec, not UTF-8, numbers beyond a double) are taken out of the block
and read one by one.

A block of flat lines (`protocol.frames`) that is refused is restored, and read as if its lines had never been flat.
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
"""How much of a segment is parsed at a time; a longer line makes a longer block."""

BLOCK_CELLS = 2_000_000
"""The most values of a block. Absent ones count, as they take some 20 bytes as well. A line is never cut."""

_SHORTEST_LINE = len(b'{"type":"RECORD","record":{"stream":"","data":{},"emitted_at":0}}')
_NEWLINE = 10

_HOPELESS = 8
"""After this many refused blocks of flat lines in turn, the next ones are restored without being tried."""


class BlockDecoder:
    """Decodes blocks of RECORD lines for one stream's columns, and keeps the strategies that the columns need."""

    def __init__(self, columns: Sequence[Field], floats: Floats = Floats.ANY) -> None:
        self._record = RecordFields.of(columns)
        self._floats = floats
        self._reader = BlockReader([ColumnReader.of(field, floats) for field in self._record.fields])
        self._flat_reader: BlockReader | None = None
        self._refused_in_turn = 0
        self._filters: Set[LineFilter] = frozenset()
        self._lines = 0

    @cached_property
    def _coerce(self) -> Callable[[bytes], CoercedRecord]:
        return record_coercer(self._record.fields, self._floats)

    def decode(
        self, block: bytes | memoryview, frame: Frame | None = None, *, mixed: bool = False, has_empty: bool = False
    ) -> Iterator[Decoded]:
        """Decode whole lines, each ended by a newline. The parts together hold every line once.

        With a frame the lines are flat, or some of them if they are mixed. Empty lines, if there may be any, are
        skipped and counted. Records keep their order but for those of irregular lines, which may come first:
        `Decoded.line_numbers` has it. Raises MalformedLine, with its number among all lines that were decoded (from 1),
        for a line that was flat and is not a record.
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
                columns = _taken(decoded.columns, self._record)
                own = decoded.line_numbers if numbers is None else numbers[decoded.line_numbers]
                yield replace(decoded, columns=columns, line_numbers=own + first)
        except MalformedLine as error:
            number = error.line_number if numbers is None else int(numbers[error.line_number - 1]) + 1
            raise MalformedLine(first + number, error.length, error.reason) from None

    def _framed(self, block: bytes | memoryview, frame: Frame, *, mixed: bool) -> Iterator[Decoded]:
        """Decode lines of which some are flat; line numbers are those in the block."""
        flat: tuple[bytes | memoryview, LineNumbers | None] = (block, None)
        others: tuple[bytes, LineNumbers | None] = (b"", None)
        if mixed:
            flat, others = frame.split(block)
            if not flat[0]:
                yield from self._in_parts(block)
                return
        decoded = self._decoded_flat(flat[0], frame)
        if decoded is None:
            received = frame.restored(block)
            require_records(received, frame)
            yield from self._in_parts(received)
            return
        yield decoded if flat[1] is None else replace(decoded, line_numbers=flat[1])
        yield from self._in_parts(*others)

    def _decoded_flat(self, lines: bytes | memoryview, frame: Frame) -> Decoded | None:
        """Return what flat lines are decoded to; None if something in them needs the lines as received."""
        if self._reader.is_whole or self._filters or self._refused_in_turn >= _HOPELESS or not _is_utf8(lines):
            return None
        reader = self._flat_reader
        if reader is None or reader.frame != frame or reader.columns is not self._reader.columns:
            reader = self._flat_reader = BlockReader(self._reader.columns, frame=frame)
        try:
            decoded = reader.read(lines)
        except (SchemaMismatch, BlockChangesExceeded):
            self._refused_in_turn += 1
            return None
        self._refused_in_turn = 0
        return decoded

    def _in_parts(self, block: bytes | memoryview, numbers: LineNumbers | None = None) -> Iterator[Decoded]:
        """Decode lines that have these numbers in their block; None for a whole block."""
        filters = self._filters if _is_utf8(block) else self._filters | {_not_utf8}
        if not filters:
            if block:
                yield from self._decoded(block, numbers)
            return
        parts = self._separated(bytes(block), filters, numbers)
        yield from self._decoded_one_by_one(parts.irregular, parts.irregular_numbers)
        if parts.regular:
            yield from self._decoded(parts.regular, parts.regular_numbers)

    def _decoded(self, text: bytes | memoryview, numbers: LineNumbers | None) -> Iterator[Decoded]:
        """Decode lines that have these numbers in their block; None for a whole block."""
        while True:
            try:
                decoded = self._reader.read(text)
                yield decoded if numbers is None else replace(decoded, line_numbers=_fitting(numbers, decoded.rows))
                return
            except BlockChangesExceeded:
                yield from self._decoded_halves(bytes(text), numbers)
                return
            except (SchemaMismatch, RejectedRecord):
                adapted = self._reader.adapted(bytes(text))
                if adapted is None:
                    break
                self._reader = adapted
        block = bytes(text)
        parts = self._separated(block, _LINE_FILTERS, numbers)
        if parts.irregular:
            yield from self._decoded_one_by_one(parts.irregular, parts.irregular_numbers)
            if parts.regular:
                yield from self._decoded(parts.regular, parts.regular_numbers)
        elif block.count(b"\n") <= FEW_LINES:
            yield from self._decoded_one_by_one(block.split(b"\n")[:-1], parts.regular_numbers)
        else:
            yield from self._decoded_halves(block, numbers)

    def _decoded_halves(self, block: bytes, numbers: LineNumbers | None) -> Iterator[Decoded]:
        numbers = _all_numbers(block) if numbers is None else numbers
        first, second = halves(block)
        middle = first.count(b"\n")
        yield from self._decoded(first, numbers[:middle])
        yield from self._decoded(second, numbers[middle:])

    def _separated(self, block: bytes, filters: Set[LineFilter], numbers: LineNumbers | None) -> _Separated:
        """Return the block without its irregular lines, and those.

        The filters that found any are used on the next block before it is read.
        """
        lines = block.split(b"\n")[:-1]
        numbers = _all_numbers(block) if numbers is None else numbers
        found = {each: each(lines) for each in filters}
        self._filters = frozenset(each for each, irregular in found.items() if irregular.any())
        if not self._filters:
            return _Separated(block, numbers, [], numbers[:0])
        irregular = np.logical_or.reduce([*found.values()])
        regular = b"\n".join([*compress(lines, ~irregular), b""])
        return _Separated(regular, numbers[~irregular], [*compress(lines, irregular)], numbers[irregular])

    # --- One by one ---

    def _decoded_one_by_one(self, lines: Sequence[bytes], numbers: LineNumbers) -> Iterator[Decoded]:
        """Read each line alone. Yields whenever more than BLOCK_CHANGES values are changed, and at the end."""
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
            if own := row.changes[row.reported :]:
                changed.append(ChangedRow(len(rows), line, own))
                changes += len(own)
            rows.append(row)
            kept.append(number)
            if changes > BLOCK_CHANGES:
                yield _placed(self._of_rows(rows, changed, rejected), lines, numbers, kept)
                rows, kept, changed, rejected, changes = [], [], [], [], 0
        if rows or rejected:
            yield _placed(self._of_rows(rows, changed, rejected), lines, numbers, kept)

    def _of_rows(
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
    """Yield blocks of whole lines, not copied, each of about BLOCK_BYTES and of `cells` values at most."""
    most_lines = max(1, cells // max(1, _leaves(columns)))
    text = memoryview(content).toreadonly()
    start = 0
    while start < len(text):
        end = content.rfind(b"\n", start, start + BLOCK_BYTES) + 1 or content.find(b"\n", start) + 1 or len(text)
        yield from _of_few_lines(text[start:end], most_lines)
        start = end


def _of_few_lines(block: memoryview, most_lines: int) -> Iterator[memoryview]:
    if len(block) > most_lines * _SHORTEST_LINE:
        is_end = np.frombuffer(block, np.uint8) == _NEWLINE
        if np.count_nonzero(is_end) > most_lines:
            start = 0
            for end in (np.flatnonzero(is_end)[most_lines - 1 :: most_lines] + 1).tolist():
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


def _taken(arrays: Sequence[Any], record: RecordFields) -> list[Any]:
    """Return the columns' values from those of the record's fields; where an object is null, its fields are.

    Columns may be fields of objects (`nested: flatten`). Whatever is in an object, it is read by the rules of objects,
    and its fields are what they would be in a struct.
    """
    # No function that calls itself: a reference cycle, it would keep the arrays until the garbage collector runs.
    opened: dict[tuple[int, ...], list[Any]] = {(): [*arrays]}
    for position in record.positions:
        for depth in range(1, len(position)):
            if (around := position[:depth]) not in opened:
                opened[around] = opened[around[:-1]][around[-1]].flatten()  # With the objects' validity.
    return [opened[position[:-1]][position[-1]] for position in record.positions]


# --- Line numbers ---------------------------------------------------------------------------------------------------


class _Separated(NamedTuple):
    """A block without its irregular lines, and those, each with the numbers of the lines in their block."""

    regular: bytes
    regular_numbers: LineNumbers
    irregular: list[bytes]
    irregular_numbers: LineNumbers


def _without_empty_lines(block: bytes | memoryview) -> tuple[bytes, LineNumbers, int]:
    """Return the lines that are not empty, their numbers in the block, and how many lines it has."""
    octets = np.frombuffer(block, np.uint8)
    starts, ends = line_bounds(octets)
    return np.delete(octets, ends[starts == ends]).tobytes(), np.flatnonzero(starts < ends), len(ends)


def _all_numbers(block: bytes) -> LineNumbers:
    return np.arange(block.count(b"\n"))


def _fitting(numbers: LineNumbers, rows: int) -> LineNumbers:
    """Return numbers for the rows: those of the lines, unless a line is blank and another holds two records."""
    return numbers if len(numbers) == rows else np.arange(rows) + numbers[0]


def _placed(decoded: Decoded, lines: Sequence[bytes], numbers: LineNumbers, kept: Sequence[int]) -> Decoded:
    """Return the rows of these `kept` lines with their lines and numbers."""
    return replace(decoded, lines=[lines[number] for number in kept], line_numbers=numbers[np.array(kept, int)])


def _is_utf8(block: bytes | memoryview) -> bool:
    """Whether the bytes are UTF-8, which Arrow's JSON parser does not check."""
    offsets = pa.py_buffer(np.array([0, len(block)], np.int32).data)
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


# --- Irregular lines ------------------------------------------------------------------------------------------------

Mask = np.ndarray[Any, np.dtype[np.bool_]]

LineFilter = Callable[[Sequence[bytes]], Mask]
"""From lines to a mask of those that are irregular."""

_REGULAR_LINE = msgspec.json.Decoder(RecordLine[RegularRecord])


def _not_a_record(lines: Sequence[bytes]) -> Mask:
    """Lines that are not JSON, or not a record."""
    return ~np.fromiter(map(_is_record, lines), np.bool_, len(lines))


def _is_record(line: bytes) -> bool:
    try:
        _REGULAR_LINE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _not_utf8(lines: Sequence[bytes]) -> Mask:
    """Lines that are not UTF-8."""
    return ~np.fromiter(map(_is_text, lines), np.bool_, len(lines))


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _maybe_beyond_double(lines: Sequence[bytes]) -> Mask:
    """Lines that may hold a number too large for a double: Arrow refuses it even in a field that is not asked for."""
    texts: Any = pa.array(lines, pa.binary())
    found: Mask = pc.match_substring_regex(texts, _BEYOND_DOUBLE).to_numpy(False)
    return found


_BEYOND_DOUBLE = r"[0-9][eE]\+?[0-9]{3}|[0-9]{300}"
_LINE_FILTERS: Set[LineFilter] = frozenset({_not_a_record, _maybe_beyond_double})
