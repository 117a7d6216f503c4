"""Decode blocks of RECORD lines to Arrow columns. A block is a piece of text with whole lines.

- The native decoder (`records.native`) converts nearly all values.
- The slower rules in `records.values` convert the values that the native decoder does not accept.
- `records.record` decodes the lines that the native decoder rejects. If the native decoder is not available,
  `records.record` decodes all lines.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from destination_datalake.protocol.json_text import line_bounds
from destination_datalake.records.decoded import (
    Decoded,
    Lines,
    RejectedLine,
    ValueChange,
    change_lists,
    changes_array,
)
from destination_datalake.records.native import NativeBlock, NativeDecoder, is_available
from destination_datalake.records.record import CoercedRecord, RejectedRecord, record_coercer, source_changes
from destination_datalake.records.values.registry import rules_for
from destination_datalake.records.values.rules import Coercer, Floats, Value
from destination_datalake.schema.columns import RecordFields
from destination_datalake.schema.types import ColumnType, Field, List, Struct

BLOCK_BYTES = 8 * 1024 * 1024
"""Maximum size of a block in bytes. A single longer line is a block of its own.

The native decoder decodes a block in one call.
"""

BLOCK_CELLS = 2_000_000
"""Maximum number of values in a block with several lines.

Values that a record lacks count too, because each uses about 20 bytes of memory.
"""

BLOCK_CHANGES = 50_000
"""The decoder yields the decoded rows as soon as these rows contain more than this number of changed values."""

_SHORTEST_LINE = len(b'{"type":"RECORD","record":{"stream":"","data":{},"emitted_at":0}}')
_NEWLINE = 10


class _Column(NamedTuple):
    """The Arrow type of a column, and the function for values that the native decoder does not accept."""

    type: pa.DataType
    coerce: Coercer


class BlockDecoder:
    """A decoder that converts blocks of one stream's RECORD lines to the columns of the stream's table."""

    def __init__(self, columns: Sequence[Field], floats: Floats = Floats.ANY) -> None:
        self._record = RecordFields.for_columns(columns)
        self._floats = floats
        rules = [(field.source, rules_for(field.type, floats)) for field in self._record.fields]
        self._columns = [_Column(column.arrow_type, column.coercer(source)) for source, column in rules]
        self._native = NativeDecoder(self._record.fields) if is_available() else None
        self._lines = 0

    @cached_property
    def _coerce(self) -> Callable[[bytes], CoercedRecord]:
        return record_coercer(self._record.fields, self._floats)

    def decode(self, block: bytes | memoryview) -> Iterator[Decoded]:
        """Decode a block of whole lines, each ending with a newline. Yield the result in parts.

        Each line that is not empty is in exactly one part, either as a row or as a rejected line. The order of lines
        may change. Line numbers also count empty lines. The first line of a block has the number after the last line of
        the previous block.
        """
        view = memoryview(block)
        if self._native is None:
            lines, count = _all_lines(view, self._lines)
            parts = self._decode_one_by_one(lines)
        else:
            read = self._native.decode(view, self._lines)
            count = read.line_count
            parts = self._decode_block(view, read)
        self._lines += count
        for part in parts:
            yield replace(part, columns=_flatten(part.columns, self._record))

    def _decode_block(self, block: memoryview, read: NativeBlock) -> Iterator[Decoded]:
        """Yield the result of a block, beginning with the lines that the native decoder rejected."""
        yield from self._decode_one_by_one(read.refused)
        cells = _CoercedCells(0)
        for row, column, start, end in read.cells:
            # Split only between rows: the cells of a row must be in one part. `changes` counts rows from `first_row`.
            if cells.change_count > BLOCK_CHANGES and row - cells.first_row not in cells.changes:
                yield self._rows(read, cells, row)
                cells = _CoercedCells(row)
            cells.add(row, column, bytes(block[start:end]), self._columns)
        if cells.first_row < len(read.lines):
            yield self._rows(read, cells, len(read.lines))

    def _rows(self, read: NativeBlock, cells: _CoercedCells, end: int) -> Decoded:
        """Return the rows from `cells.first_row` up to, but not including, row `end`.

        The values in `cells` replace the nulls that the native decoder returned for these values.
        """
        first, count = cells.first_row, end - cells.first_row
        columns = [
            # Cells replace nulls, so the arrays of columns without cells are slices without a copy.
            _with_values(array.slice(first, count), *cells.values[number])
            if number in cells.values
            else array.slice(first, count)
            for number, array in enumerate(read.columns)
        ]
        lines = read.lines.select(slice(first, end))
        changed = {row: changes for row, changes in cells.changes.items() if changes}
        changes = _merged_changes(read.source_changes.slice(first, count), cells.reported, changed)
        return Decoded(read.extracted_at.slice(first, count), columns, changes, changed, (), lines)

    def _decode_one_by_one(self, lines: Lines) -> Iterator[Decoded]:
        """Decode lines one at a time, without the native decoder.

        Yield the rows and rejected lines when the rows have more than BLOCK_CHANGES changes, and after the last line.
        """
        rows: list[CoercedRecord] = []
        kept: list[int] = []
        rejected: list[RejectedLine] = []
        changes = 0
        for index in range(len(lines)):
            line = lines[index]
            try:
                row = self._coerce(line)
            except RejectedRecord as error:
                rejected.append(RejectedLine(line, error.reason, str(error)))
                continue
            rows.append(row)
            kept.append(index)
            changes += len(row.changes) - row.reported
            if changes > BLOCK_CHANGES:
                yield self._from_rows(rows, rejected, lines.select(np.array(kept, np.int64)))
                rows, kept, rejected, changes = [], [], [], 0
        if rows or rejected:
            yield self._from_rows(rows, rejected, lines.select(np.array(kept, np.int64)))

    def _from_rows(self, rows: Sequence[CoercedRecord], rejected: Sequence[RejectedLine], lines: Lines) -> Decoded:
        columns = [
            pa.array([row.values[index] for row in rows], column.type) for index, column in enumerate(self._columns)
        ]
        # The cast cannot overflow, because `emitted_at` accepts only the years 1 to 9999.
        milliseconds: Any = pa.array([row.emitted_at for row in rows], pa.timestamp("ms", "UTC"))
        extracted_at = milliseconds.cast(pa.timestamp("us", "UTC"))
        changed = {number: new for number, row in enumerate(rows) if (new := row.changes[row.reported :])}
        changes = change_lists(len(rows), enumerate(row.changes for row in rows))
        return Decoded(extracted_at, columns, changes, changed, rejected, lines)


# --- Values that the native decoder does not accept -----------------------------------------------------------------


@dataclass
class _CoercedCells:
    """The values that the native decoder did not accept, after conversion by the rules in `records.values`.

    `values` maps the number of each column to row numbers, and to the values for these rows. `changes` maps row numbers
    to the connector's changes, and `reported` maps row numbers to the source's changes. All row numbers count from
    `first_row`. `change_count` is the number of the connector's changes in all rows.
    """

    first_row: int
    values: dict[int, tuple[list[int], list[Value]]] = field(default_factory=dict)
    changes: dict[int, list[ValueChange]] = field(default_factory=dict)
    reported: dict[int, list[ValueChange]] = field(default_factory=dict)
    change_count: int = 0

    def add(self, row: int, number: int, text: bytes, columns: Sequence[_Column]) -> None:
        """Convert the JSON text of the value in a row and a column, and add the result.

        Call this method in the order of rows and, for each row, in the order of columns. Column number -1 stands for
        the record's `meta`.
        """
        row -= self.first_row
        if number < 0:
            self.reported[row] = source_changes(text)
            return
        changes = self.changes.setdefault(row, [])
        before = len(changes)
        rows, values = self.values.setdefault(number, ([], []))
        rows.append(row)
        values.append(columns[number].coerce(text, changes))
        self.change_count += len(changes) - before


def _with_values(array: Any, rows: Sequence[int], values: Sequence[Value]) -> Any:
    """Return a copy of `array` with `values` at the positions `rows`."""
    # `take` from the array followed by the new values: position len(array) + i selects value i.
    order = np.arange(len(array))
    order[np.array(rows)] = np.arange(len(array), len(array) + len(rows))
    return pa.concat_arrays([array, pa.array(values, array.type)]).take(pa.array(order))


def _merged_changes(
    read: Any, reported: Mapping[int, Sequence[ValueChange]], changed: Mapping[int, Sequence[ValueChange]]
) -> pa.Array[Any] | None:
    """Return an array with the list of changes of each row, or None if no row has changes.

    In each list, the source's changes come first. `read` contains the source's changes for the rows in which the native
    decoder could read them. `reported` contains the source's changes for all other rows. `changed` contains the
    connector's changes.
    """
    entries = read.flatten()
    if not entries.null_count and not reported and not changed:
        # Omit the array's null mask, so that null lists become empty lists: the start and end of a null list are equal.
        return changes_array(read.offsets, read.values) if len(entries) else None
    # `by_row` has the source's changes first. The connector's changes are appended below.
    by_row: dict[int, list[ValueChange]] = {row: [*changes] for row, changes in reported.items()}
    for row, row_entries in enumerate(read.to_pylist() if len(entries) else ()):
        if row_entries:
            by_row[row] = [ValueChange(**entry) for entry in row_entries if entry is not None]
    for row, changes in changed.items():
        by_row[row] = [*by_row.get(row, ()), *changes]
    return change_lists(len(read), sorted(by_row.items()))


# --- Lines ----------------------------------------------------------------------------------------------------------


def _all_lines(block: memoryview, first_number: int) -> tuple[Lines, int]:
    """Return the lines of a block that are not empty, and the count of all lines of the block.

    `first_number` is the line number of the block's first line.
    """
    starts, ends = line_bounds(np.frombuffer(block, np.uint8))
    lines = Lines(block, starts, ends, np.arange(first_number, first_number + len(ends)))
    return lines.select(np.flatnonzero(starts < ends)), len(ends)


# --- Splitting a segment --------------------------------------------------------------------------------------------


def blocks(
    content: mmap.mmap | bytes | bytearray, columns: Sequence[Field], cells: int = BLOCK_CELLS
) -> Iterator[memoryview]:
    """Split record lines into blocks of whole lines, without copying bytes.

    A block has at most BLOCK_BYTES bytes and at most `cells` values in the columns, unless it is a single line.
    """
    # A list counts like one value per leaf, because the number of its elements is unknown.
    max_lines = max(1, cells // max(1, _leaves(columns)))
    text = memoryview(content).toreadonly()
    start = 0
    while start < len(text):
        # The last newline within the limit, or else the end of a single line that exceeds it. Only a last line may lack
        # a newline.
        end = content.rfind(b"\n", start, start + BLOCK_BYTES) + 1 or content.find(b"\n", start) + 1 or len(text)
        yield from _split_lines(text[start:end], max_lines)
        start = end


def _split_lines(block: memoryview, max_lines: int) -> Iterator[memoryview]:
    # Most blocks are too short to contain too many lines, so do not count their newlines.
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
    """Return the arrays of the columns, given the arrays of the record's fields.

    The decoder reads flattened objects (`nested: flatten`) as structs. This function converts the fields of these
    structs to columns. If an object is null in a row, all of its fields are null.
    """
    # Do not use a nested recursive function: its reference cycle would keep the arrays until garbage collection.
    fields_of: dict[tuple[int, ...], list[Any]] = {(): [*arrays]}
    for position in record.positions:
        for depth in range(1, len(position)):
            if (parent := position[:depth]) not in fields_of:
                # The method `flatten` applies the struct's nulls to the struct's fields.
                fields_of[parent] = fields_of[parent[:-1]][parent[-1]].flatten()
    return [fields_of[position[:-1]][position[-1]] for position in record.positions]
