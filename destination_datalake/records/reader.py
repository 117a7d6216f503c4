"""From blocks of record lines to Arrow columns, whatever the lines hold.

Nearly all blocks are as their schema says and are read in C++ as they are (`block`). When one is refused, the decoder
finds the columns that are to blame and reads those in another way from then on; the others keep their speed. Lines that
are odd as a whole (JSON that only Python takes, bytes that are not UTF-8, numbers beyond a double) are sorted out and
read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from itertools import compress
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from destination_datalake.records.arrow_json import ReadStrategy, first_strategy, next_strategy
from destination_datalake.records.block import (
    BLOCK_CHANGES,
    BlockCrowded,
    BlockReader,
    ChangedRow,
    Decoded,
    RefusedLine,
    change_lists,
    timestamps,
)
from destination_datalake.records.changes import Floats
from destination_datalake.records.envelope import BlockRefused
from destination_datalake.records.record import LATEST_EMITTED, CoercedRecord, RecordRefused, record_coercer
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.narrowest import widest
from destination_datalake.schema.types import Field

FEW_LINES = 64
"""So many lines are few enough to try columns on, or to read one by one when nothing else helps."""

_SMALL = 64 * 1024
"""Bytes that are few enough to try columns on; one line always is."""


class BlockDecoder:
    """Decodes blocks of RECORD lines for one stream's columns, and remembers how their columns have to be read."""

    def __init__(self, columns: Sequence[Field], floats: Floats = Floats.ANY) -> None:
        self._columns = tuple(columns)
        self._floats = floats
        self._careful = record_coercer(columns, floats)
        self._arrow_types = [arrow_type(widest(column.type)) for column in columns]
        self._readings = [first_strategy(column) for column in columns]
        self._envelope = ReadStrategy.NATIVE
        self._reader = BlockReader(self._columns, self._readings, self._envelope, floats)
        self._sieves: Set[Sieve] = frozenset()

    def decode(self, block: bytes | memoryview) -> Iterator[Decoded]:
        """Decode whole lines, each ended by a newline. What is yielded together holds every line, each once.

        Records keep their order but for odd ones, which may come first.
        """
        sieves = self._sieves if _is_utf8(block) else self._sieves | {_is_no_text}
        if sieves:
            block, odd = self._sorted(bytes(block), sieves)
            yield from self._by_row(odd)
        if block:
            yield from self._decoded(block)

    def _decoded(self, text: bytes | memoryview) -> Iterator[Decoded]:
        while True:
            try:
                yield self._reader.read(text)
                return
            except BlockCrowded:
                for half in _halves(bytes(text)):
                    yield from self._decoded(half)
                return
            except (BlockRefused, RecordRefused):
                if not self._learn(bytes(text)):
                    break
        block = bytes(text)
        sound, odd = self._sorted(block, _SIEVES)
        if odd:
            yield from self._by_row(odd)
            if sound:
                yield from self._decoded(sound)
        elif block.count(b"\n") <= FEW_LINES:
            yield from self._by_row(block.split(b"\n")[:-1])
        else:
            for half in _halves(block):
                yield from self._decoded(half)

    def _sorted(self, block: bytes, sieves: Set[Sieve]) -> tuple[bytes, list[bytes]]:
        """The block without its odd lines, and those; the sieves that found any are used on the next block at once."""
        lines = block.split(b"\n")[:-1]
        found = {sieve: sieve(lines) for sieve in sieves}
        self._sieves = frozenset(sieve for sieve, odd in found.items() if odd.any())
        if not self._sieves:
            return block, []
        odd = np.logical_or.reduce([*found.values()])
        return b"\n".join([*compress(lines, ~odd), b""]), [*compress(lines, odd)]

    def _learn(self, block: bytes) -> bool:
        """Change how columns are read that a refused block shows to need it; False if there is none."""
        before = (self._envelope, *self._readings)
        self._learn_from(block)
        return before != (self._envelope, *self._readings)

    def _learn_from(self, block: bytes) -> bool:
        """Learn from one small piece after the other that is refused; False as soon as there is nothing to learn."""
        lines = block.count(b"\n")
        if lines > FEW_LINES or (lines > 1 and len(block) > _SMALL):
            return all(self._learn_from(half) for half in _halves(block) if _refused(self._reader, half))
        before = (self._envelope, *self._readings)
        self._envelope = self._envelope_for(block)
        self._readings = self._readings_for(block)
        self._reader = BlockReader(self._columns, self._readings, self._envelope, self._floats)
        return before != (self._envelope, *self._readings)

    def _envelope_for(self, piece: bytes) -> ReadStrategy:
        """The way to read the envelope that takes the piece; the present one if none does."""
        readings = dict.fromkeys((self._envelope, ReadStrategy.RAW_JSON))
        taken = (each for each in readings if not _refused(BlockReader((), (), each, self._floats), piece))
        return next(taken, self._envelope)

    def _readings_for(self, piece: bytes) -> list[ReadStrategy]:
        """For each column the first way to read it that takes the piece; the present one if none does."""
        readings = [*self._readings]
        odd = self._refused_columns(piece, range(len(readings)), readings)
        while odd:
            trials = {index: next_strategy(readings[index], self._columns[index].type) for index in odd}
            for index, trial in trials.items():
                readings[index] = trial or self._readings[index]
            odd = self._refused_columns(piece, [index for index in odd if trials[index]], readings)
        return readings

    def _refused_columns(self, piece: bytes, indexes: Sequence[int], readings: Sequence[ReadStrategy]) -> list[int]:
        """Those of the columns that the piece is refused for: halved again and again, as most are innocent."""
        chosen = [self._columns[i] for i in indexes], [readings[i] for i in indexes]
        if not indexes or not _refused(BlockReader(*chosen, self._envelope, self._floats), piece):
            return []
        if len(indexes) == 1:
            return [*indexes]
        halves = indexes[: len(indexes) // 2], indexes[len(indexes) // 2 :]
        return [index for half in halves for index in self._refused_columns(piece, half, readings)]

    def _by_row(self, lines: Sequence[bytes]) -> Iterator[Decoded]:
        """Read each line alone. Yields whenever much has been changed, and at the end if anything is left."""
        rows: list[CoercedRecord] = []
        changed: list[ChangedRow] = []
        refused: list[RefusedLine] = []
        changes = 0
        for line in lines:
            try:
                row = self._careful(line)
            except RecordRefused as refusal:
                refused.append(RefusedLine(line, refusal.reason, str(refusal)))
                continue
            if ours := row.changes[row.reported :]:
                changed.append(ChangedRow(len(rows), line, ours))
                changes += len(ours)
            rows.append(row)
            if changes > BLOCK_CHANGES:
                yield self._of_rows(rows, changed, refused)
                rows, changed, refused, changes = [], [], [], 0
        if rows or refused:
            yield self._of_rows(rows, changed, refused)

    def _of_rows(
        self, rows: Sequence[CoercedRecord], changed: Sequence[ChangedRow], refused: Sequence[RefusedLine]
    ) -> Decoded:
        columns = [
            pa.array([row.values[index] for row in rows], type_) for index, type_ in enumerate(self._arrow_types)
        ]
        milliseconds = pa.array([row.emitted_at for row in rows], pa.int64())
        changes = change_lists([row.changes for row in rows]) if any(row.changes for row in rows) else None
        return Decoded(timestamps(milliseconds), columns, changes, changed, refused)


def _refused(reader: BlockReader, block: bytes) -> bool:
    try:
        reader.read(block)
    except (BlockRefused, RecordRefused):
        return True
    except BlockCrowded:
        return False  # It will be read in parts, and each is judged then.
    return False


def _halves(block: bytes) -> tuple[bytes, bytes]:
    """Two parts of whole lines, of about the same size, of a block of several lines."""
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle == len(block):
        middle = block.rfind(b"\n", 0, len(block) - 1) + 1
    return block[:middle], block[middle:]


def _is_utf8(block: bytes | memoryview) -> bool:
    """Whether the bytes are UTF-8, which Arrow's JSON parser takes on trust."""
    offsets = pa.py_buffer(np.array([0, len(block)], np.int32).data)
    try:
        pa.StringArray.from_buffers(1, offsets, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


# --- Lines that are odd as a whole --------------------------------------------------------------------------------

Mask = np.ndarray[Any, np.dtype[np.bool_]]

Sieve = Callable[[Sequence[bytes]], Mask]
"""Tells of each line whether it is odd."""

_Time = Meta(ge=-LATEST_EMITTED, le=LATEST_EMITTED)


class _AnyData(msgspec.Struct, gc=False):
    """An object, whatever is in it."""


class _AnyRecord(msgspec.Struct, gc=False):
    data: _AnyData
    emitted_at: Annotated[int, _Time] | Annotated[float, _Time]


class _AnyLine(msgspec.Struct, gc=False):
    record: _AnyRecord


_SOUND = msgspec.json.Decoder(_AnyLine)


def _is_unsound(lines: Sequence[bytes]) -> Mask:
    """Lines that are no JSON, or no record."""
    return ~np.fromiter(map(_is_record, lines), np.bool_, len(lines))


def _is_record(line: bytes) -> bool:
    try:
        _SOUND.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _is_no_text(lines: Sequence[bytes]) -> Mask:
    """Lines that are not UTF-8."""
    return ~np.fromiter(map(_is_text, lines), np.bool_, len(lines))


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _may_be_beyond_double(lines: Sequence[bytes]) -> Mask:
    """Lines that may hold a number which is too large for a double: Arrow refuses it even where nobody asks for it."""
    texts: Any = pa.array(lines, pa.binary())
    found: Mask = pc.match_substring_regex(texts, _BEYOND_DOUBLE).to_numpy(False)
    return found


_BEYOND_DOUBLE = r"[0-9][eE]\+?[0-9]{3}|[0-9]{300}"
_SIEVES: Set[Sieve] = frozenset({_is_unsound, _may_be_beyond_double})
