"""Sets of rows of one file, by position: one bit a row, as jobs and the driver exchange them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEVEL = 1


@dataclass(frozen=True, slots=True)
class RowSet:
    """Some of the first `rows` rows of a file. `bits` are packed and compressed."""

    rows: int
    count: int
    bits: bytes

    @classmethod
    def of_mask(cls, mask: NDArray[np.bool_]) -> Self:
        """Return the rows for which the mask is true."""
        return cls(len(mask), int(np.count_nonzero(mask)), zlib.compress(np.packbits(mask).tobytes(), _LEVEL))

    @classmethod
    def of_positions(cls, positions: NDArray[np.int64], rows: int) -> Self:
        """Return the rows at these positions, from 0; each may be named more than once."""
        mask = np.zeros(rows, np.bool_)
        mask[positions] = True
        return cls.of_mask(mask)

    def mask(self) -> NDArray[np.bool_]:
        """Return a mask of the first `rows` rows, true for those in the set."""
        packed = np.frombuffer(zlib.decompress(self.bits), np.uint8)
        return np.unpackbits(packed, count=self.rows).view(np.bool_)

    def positions(self) -> NDArray[np.int64]:
        """Return the positions, ascending."""
        return np.flatnonzero(self.mask())

    @classmethod
    def union(cls, sets: Sequence[RowSet]) -> Self:
        """Return the rows that are in any of the sets, of which there is one at least."""
        rows = max(each.rows for each in sets)
        union = np.zeros((rows + 7) // 8, np.uint8)
        for each in sets:
            packed = np.frombuffer(zlib.decompress(each.bits), np.uint8)
            union[: len(packed)] |= packed
        return cls(rows, _count(union), zlib.compress(union.tobytes(), _LEVEL))


class Marks:
    """Rows of one file that are marked one after the other: a bit for each row that the file has."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._bits = np.zeros((rows + 7) // 8, np.uint8)

    def add(self, positions: NDArray[np.int64]) -> None:
        """Mark the rows at these positions, from 0."""
        np.bitwise_or.at(self._bits, positions >> 3, np.uint8(0x80) >> (positions & 7).astype(np.uint8))

    def row_set(self) -> RowSet:
        """Return the rows that are marked."""
        return RowSet(self._rows, _count(self._bits), zlib.compress(self._bits.tobytes(), _LEVEL))


def _count(bits: NDArray[np.uint8]) -> int:
    """Return how many bits are set. numpy counts them since its version 2 only."""
    return int.from_bytes(bits.tobytes(), "little").bit_count()
