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

from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.types import Field
from destination_datalake.schema.width import widest
from destination_datalake.spark.block import (
    CHANGES_TYPE,
    BlockReader,
    ChangedRow,
    Decoded,
    Reading,
    RefusedLine,
    as_dicts,
    first_reading,
    next_reading,
    timestamps,
)
from destination_datalake.spark.coerce import LATEST_EMITTED, CoercedRecord, Floats, RecordRefused, record_coercer
from destination_datalake.spark.lines import BlockRefused

FEW_LINES = 64
"""So many lines are small enough to try a column on, or to read one by one when nothing else helps."""


class BlockDecoder:
    """Decodes blocks of RECORD lines for one stream's columns, and remembers how their columns have to be read."""

    def __init__(self, columns: Sequence[Field], floats: Floats = Floats.ANY) -> None:
        self._columns = tuple(columns)
        self._floats = floats
        self._careful = record_coercer(columns, floats)
        self._arrow_types = [arrow_type(widest(column.type)) for column in columns]
        self._readings = [first_reading(column) for column in columns]
        self._envelope = Reading.NATIVE
        self._reader = BlockReader(self._columns, self._readings, self._envelope, floats)
        self._sieves: Set[Sieve] = frozenset()

    def decode(self, block: bytes | memoryview) -> Iterator[Decoded]:
        """Decode whole lines, each ended by a newline. What is yielded together holds every line, each once.

        Records keep their order but for odd ones, which may come first.
        """
        sieves = self._sieves if _is_utf8(block) else self._sieves | {_is_no_text}
        if sieves:
            block, odd = self._sorted(bytes(block), sieves)
            if odd:
                yield self._by_row(odd)
        if block:
            yield from self._decoded(block)

    def _decoded(self, text: bytes | memoryview) -> Iterator[Decoded]:
        while True:
            try:
                yield self._reader.read(text)
                return
            except (BlockRefused, RecordRefused):
                if not self._learn(bytes(text)):
                    break
        block = bytes(text)
        sound, odd = self._sorted(block, _SIEVES)
        if odd:
            yield self._by_row(odd)
            if sound:
                yield from self._decoded(sound)
        elif block.count(b"\n") <= FEW_LINES:
            yield self._by_row(block.split(b"\n")[:-1])
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
        piece = self._refused_piece(block)
        if self._refuses(piece, (), ()):
            if self._envelope is Reading.CUT:
                return False
            self._envelope = Reading.CUT
            if self._refuses(piece, (), ()):
                self._envelope = Reading.NATIVE
                return False
        self._readings = [
            self._reading_for(piece, column, reading)
            for column, reading in zip(self._columns, self._readings, strict=True)
        ]
        self._reader = BlockReader(self._columns, self._readings, self._envelope, self._floats)
        return before != (self._envelope, *self._readings)

    def _refused_piece(self, block: bytes) -> bytes:
        """A few lines of a refused block that are refused too, or more where no few are."""
        while block.count(b"\n") > FEW_LINES:
            refused = next((half for half in _halves(block) if _refused(self._reader, half)), None)
            if refused is None:
                break
            block = refused
        return block

    def _reading_for(self, piece: bytes, column: Field, reading: Reading) -> Reading:
        """The first way to read the column, from the present one on, that takes the piece; the present if none does."""
        trial: Reading | None = reading
        while trial is not None:
            if not self._refuses(piece, (column,), (trial,)):
                return trial
            trial = next_reading(trial, column.type)
        return reading

    def _refuses(self, piece: bytes, columns: Sequence[Field], readings: Sequence[Reading]) -> bool:
        return _refused(BlockReader(columns, readings, self._envelope, self._floats), piece)

    def _by_row(self, lines: Sequence[bytes]) -> Decoded:
        rows: list[CoercedRecord] = []
        changed: list[ChangedRow] = []
        refused: list[RefusedLine] = []
        for line in lines:
            try:
                row = self._careful(line)
            except RecordRefused as refusal:
                refused.append(RefusedLine(line, refusal.reason, str(refusal)))
                continue
            if ours := row.changes[row.reported :]:
                changed.append(ChangedRow(len(rows), line, ours))
            rows.append(row)
        columns = [
            pa.array([row.values[index] for row in rows], type_) for index, type_ in enumerate(self._arrow_types)
        ]
        milliseconds = pa.array([row.emitted_at for row in rows], pa.int64())
        changes = [as_dicts(row.changes) for row in rows]
        return Decoded(
            timestamps(milliseconds),
            columns,
            pa.array(changes, CHANGES_TYPE) if any(changes) else None,
            changed,
            refused,
        )


def _refused(reader: BlockReader, block: bytes) -> bool:
    try:
        reader.read(block)
    except (BlockRefused, RecordRefused):
        return True
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
