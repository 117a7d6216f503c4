"""A segment cut into blocks: a block is what is parsed, and held in memory, at a time."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence

import numpy as np

from destination_datalake.schema.types import ColumnType, Field, List, Struct

BLOCK_BYTES = 8 * 1024 * 1024
"""How much of a segment is parsed at a time; a longer line makes a longer block."""

BLOCK_CELLS = 2_000_000
"""The most values of a block. Absent ones count, as they take some 20 bytes as well. A line is never cut."""

_SHORTEST_LINE = len(b'{"type":"RECORD","record":{"stream":"","data":{},"emitted_at":0}}')
_NEWLINE = 10


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
