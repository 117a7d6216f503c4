"""From blocks of record lines to Arrow columns, whatever the lines hold.

Nearly all blocks are as their schema says and are read in C++ (`block`). When one is refused, the decoder finds the
columns that it is refused for and changes their strategy from then on; the others keep their speed. Irregular lines
(not JSON to msgspec, not UTF-8, numbers beyond a double) are taken out of the block and read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.records.block import (
    BLOCK_CHANGES,
    BlockChangesExceeded,
    BlockReader,
    ChangedRow,
    Decoded,
    Places,
    RefusedLine,
    numbers_of,
)
from destination_datalake.records.changes import Floats, change_lists
from destination_datalake.records.envelope import RecordLine, RecordRefused, RegularRecord, timestamps
from destination_datalake.records.record import CoercedRecord, record_coercer
from destination_datalake.records.values.flattened import take_columns
from destination_datalake.records.values.registry import rules_for
from destination_datalake.records.values.rules import BlockRefused, ReadStrategy
from destination_datalake.schema.columns import RecordFields
from destination_datalake.schema.types import Field, Struct

FEW_LINES = 64
"""So many lines are few enough to try strategies on, or to read one by one when no strategy helps."""

_SMALL = 64 * 1024
"""Bytes that are few enough to try strategies on; one line always is."""


class BlockDecoder:
    """Decodes blocks of RECORD lines for one stream's columns, and keeps the strategies that the columns need."""

    def __init__(self, columns: Sequence[Field], floats: Floats = Floats.ANY) -> None:
        self._record = RecordFields.of(columns)
        self._columns = self._record.fields
        self._floats = floats
        self._coerce = record_coercer(self._columns, floats)
        self._arrow_types = [rules_for(column.type, floats).arrow_type for column in self._columns]
        self._strategies = [_strategies(column)[0] for column in self._columns]
        self._envelope = ReadStrategy.NATIVE
        self._reader = BlockReader(self._columns, self._strategies, self._envelope, floats)
        self._filters: Set[LineFilter] = frozenset()
        self._lines = 0

    def decode(self, block: bytes | memoryview) -> Iterator[Decoded]:
        """Decode whole lines, each ended by a newline. What is yielded together holds every line, each once.

        Records keep their order but for those of irregular lines, which may come first: `Decoded.places` has it.
        """
        first = self._lines
        for decoded in self._in_parts(block):
            self._lines += decoded.rows + len(decoded.refused)
            columns = take_columns(decoded.columns, self._record)
            yield replace(decoded, columns=columns, places=_moved(decoded.places, first))

    def _in_parts(self, block: bytes | memoryview) -> Iterator[Decoded]:
        """Decode the lines; places are those in the block."""
        filters = self._filters if _is_utf8(block) else self._filters | {_not_utf8}
        if not filters:
            if block:
                yield from self._decoded(block, None)
            return
        parts = self._separated(bytes(block), filters, None)
        yield from self._decoded_one_by_one(parts.irregular, parts.irregular_places)
        if parts.regular:
            yield from self._decoded(parts.regular, parts.regular_places)

    def _decoded(self, text: bytes | memoryview, places: Places | None) -> Iterator[Decoded]:
        """Decode lines that are at these places in their block; None for a whole block."""
        while True:
            try:
                decoded = self._reader.read(text)
                yield decoded if places is None else replace(decoded, places=_fitting(places, decoded.rows))
                return
            except BlockChangesExceeded:
                yield from self._decoded_halves(bytes(text), places)
                return
            except (BlockRefused, RecordRefused):
                if not self._adapt(bytes(text)):
                    break
        block = bytes(text)
        parts = self._separated(block, _LINE_FILTERS, places)
        if parts.irregular:
            yield from self._decoded_one_by_one(parts.irregular, parts.irregular_places)
            if parts.regular:
                yield from self._decoded(parts.regular, parts.regular_places)
        elif block.count(b"\n") <= FEW_LINES:
            yield from self._decoded_one_by_one(block.split(b"\n")[:-1], parts.regular_places)
        else:
            yield from self._decoded_halves(block, places)

    def _decoded_halves(self, block: bytes, places: Places | None) -> Iterator[Decoded]:
        places = _all_places(block) if places is None else places
        first, second = _halves(block)
        middle = first.count(b"\n")
        yield from self._decoded(first, places[:middle])
        yield from self._decoded(second, places[middle:])

    def _separated(self, block: bytes, filters: Set[LineFilter], places: Places | None) -> _Separated:
        """Return the block without its irregular lines, and those.

        The filters that found any are used on the next block before it is read.
        """
        lines = block.split(b"\n")[:-1]
        places = _all_places(block) if places is None else places
        found = {each: each(lines) for each in filters}
        self._filters = frozenset(each for each, irregular in found.items() if irregular.any())
        if not self._filters:
            return _Separated(block, places, [], places[:0])
        irregular = np.logical_or.reduce([*found.values()])
        regular = b"\n".join([*compress(lines, ~irregular), b""])
        numbers = numbers_of(places)
        return _Separated(regular, numbers[~irregular], [*compress(lines, irregular)], numbers[irregular])

    # --- Strategies ---

    def _adapt(self, block: bytes) -> bool:
        """Change the strategies that the first refused piece of a refused block needs; False if none helps."""
        before = (self._envelope, *self._strategies)
        piece = self._first_refused_piece(block)
        self._envelope = self._envelope_for(piece)
        self._strategies = self._strategies_for(piece)
        self._reader = BlockReader(self._columns, self._strategies, self._envelope, self._floats)
        return before != (self._envelope, *self._strategies)

    def _first_refused_piece(self, block: bytes) -> bytes:
        """Return the first few lines that a block is refused for.

        A refused piece costs as much time as one that is read, and the first is mostly near the beginning. So the
        pieces that are tried grow from there, and the one that is refused is halved.
        """
        start = end = 0
        size = _SMALL
        while end < len(block):
            start, end, size = end, _line_end(block, end + size), size * 2
            if end < len(block) and _refused(self._reader, block[start:end]):
                break
        piece = block[start:end]
        while not _is_small(piece):
            first, second = _halves(piece)
            piece = first if _refused(self._reader, first) else second
        return piece

    def _envelope_for(self, piece: bytes) -> ReadStrategy:
        """Return the strategy for the envelope that takes the piece; the present one if none does."""
        strategies = dict.fromkeys((self._envelope, ReadStrategy.RAW_JSON))
        taken = (each for each in strategies if not _refused(BlockReader((), (), each, self._floats), piece))
        return next(taken, self._envelope)

    def _strategies_for(self, piece: bytes) -> list[ReadStrategy]:
        """Return for each column the first strategy that takes the piece; the present one if none does."""
        strategies = [*self._strategies]
        refused = self._refused_columns(piece, range(len(strategies)), strategies)
        while refused:
            trials = {index: _next_strategy(strategies[index], self._columns[index]) for index in refused}
            for index, trial in trials.items():
                strategies[index] = trial or self._strategies[index]
            refused = self._refused_columns(piece, [index for index in refused if trials[index]], strategies)
        return strategies

    def _refused_columns(self, piece: bytes, indexes: Sequence[int], strategies: Sequence[ReadStrategy]) -> list[int]:
        """Return those of the columns that the piece is refused for. Found by halving: most are not."""
        chosen = [self._columns[i] for i in indexes], [strategies[i] for i in indexes]
        if not indexes or not _refused(BlockReader(*chosen, self._envelope, self._floats), piece):
            return []
        if len(indexes) == 1:
            return [*indexes]
        halves = indexes[: len(indexes) // 2], indexes[len(indexes) // 2 :]
        return [index for half in halves for index in self._refused_columns(piece, half, strategies)]

    # --- One by one ---

    def _decoded_one_by_one(self, lines: Sequence[bytes], places: Places) -> Iterator[Decoded]:
        """Read each line alone. Yields whenever more than BLOCK_CHANGES values are changed, and at the end."""
        rows: list[CoercedRecord] = []
        kept: list[int] = []
        changed: list[ChangedRow] = []
        refused: list[RefusedLine] = []
        changes = 0
        for number, line in enumerate(lines):
            try:
                row = self._coerce(line)
            except RecordRefused as refusal:
                refused.append(RefusedLine(line, refusal.reason, str(refusal)))
                continue
            if own := row.changes[row.reported :]:
                changed.append(ChangedRow(len(rows), line, own))
                changes += len(own)
            rows.append(row)
            kept.append(number)
            if changes > BLOCK_CHANGES:
                yield _placed(self._of_rows(rows, changed, refused), lines, places, kept)
                rows, kept, changed, refused, changes = [], [], [], [], 0
        if rows or refused:
            yield _placed(self._of_rows(rows, changed, refused), lines, places, kept)

    def _of_rows(
        self, rows: Sequence[CoercedRecord], changed: Sequence[ChangedRow], refused: Sequence[RefusedLine]
    ) -> Decoded:
        columns = [
            pa.array([row.values[index] for row in rows], type_) for index, type_ in enumerate(self._arrow_types)
        ]
        milliseconds = pa.array([row.emitted_at for row in rows], pa.int64())
        changes = change_lists(len(rows), enumerate(row.changes for row in rows))
        has_any = any(row.changes for row in rows)
        return Decoded(timestamps(milliseconds), columns, changes if has_any else None, changed, refused)


def _strategies(column: Field) -> Sequence[ReadStrategy]:
    """Return the strategies for a column, fastest first. As a property, since its key counts as well."""
    return rules_for(Struct((column,)), Floats.ANY).strategies


def _next_strategy(strategy: ReadStrategy, column: Field) -> ReadStrategy | None:
    """Return what to try when values of the column were refused; None if nothing is left to try."""
    strategies = _strategies(column)
    following = strategies.index(strategy) + 1
    return strategies[following] if following < len(strategies) else None


def _refused(reader: BlockReader, block: bytes) -> bool:
    try:
        reader.read(block)
    except (BlockRefused, RecordRefused):
        return True
    except BlockChangesExceeded:
        return False  # It will be read in parts, and each is judged then.
    return False


def _is_small(block: bytes) -> bool:
    lines = block.count(b"\n")
    return lines == 1 or (lines <= FEW_LINES and len(block) <= _SMALL)


def _line_end(block: bytes, at: int) -> int:
    """Return the end of the line at this position, at most that of the block."""
    return block.find(b"\n", at) + 1 or len(block)


def _halves(block: bytes) -> tuple[bytes, bytes]:
    """Return two parts of whole lines, of about the same size, of a block of several lines."""
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle == len(block):
        middle = block.rfind(b"\n", 0, len(block) - 1) + 1
    return block[:middle], block[middle:]


# --- Places ---------------------------------------------------------------------------------------------------------


class _Separated(NamedTuple):
    """A block without its irregular lines, and those, each with the places of the lines in their block."""

    regular: bytes
    regular_places: Places
    irregular: list[bytes]
    irregular_places: Places


def _all_places(block: bytes) -> Places:
    return np.arange(block.count(b"\n"))


def _moved(places: Places, by: int) -> Places:
    return range(places.start + by, places.stop + by) if isinstance(places, range) else places + by


def _fitting(places: Places, rows: int) -> Places:
    """Return the places of so many rows, one for each line but where a line is blank and another holds two records."""
    return places if len(places) == rows else np.arange(rows) + places[0]


def _placed(decoded: Decoded, lines: Sequence[bytes], places: Places, kept: Sequence[int]) -> Decoded:
    """Return the rows of these `kept` lines with their lines and places."""
    return replace(decoded, lines=[lines[number] for number in kept], places=numbers_of(places)[np.array(kept, int)])


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
