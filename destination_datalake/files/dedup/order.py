"""The order of versions: which of several rows of a key is the latest.

Values are ordered: null, then NaN, then all others. Texts are ordered by their bytes; -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from destination_datalake.files.dedup.keys import canonical_keys, mask

_LOWEST = np.int64(-(2**63))


def latest(keys: pa.Array[Any], hashes: NDArray[np.uint64], order: Sequence[pa.Array[Any]]) -> NDArray[np.bool_]:
    """Return a mask of the rows that are the latest of their key: one for each of the canonical keys.

    That is the row with the highest value in the first array of `order`; among several, the one with the highest value
    in the second, and so on. Of rows that are equal in all of them it is the last.
    """
    won = np.ones(len(keys), np.bool_)
    # Most keys have one row. Arrow's table of distinct keys has to hold the others only.
    rows = _with_equal_hashes(hashes)
    won[rows] = False
    encoded: Any = keys.take(rows).dictionary_encode(null_encoding="encode")
    codes, distinct = encoded.indices.to_numpy(), len(encoded.dictionary)
    for values in order:
        leads = np.ones(len(rows), np.bool_)
        for ranks in _ranks(values.take(rows)):
            highest = np.full(distinct, _LOWEST)
            np.maximum.at(highest, codes[leads], ranks[leads])
            leads &= ranks == highest[codes]
        rows, codes = rows[leads], codes[leads]
        is_alone = np.bincount(codes, minlength=distinct)[codes] == 1
        won[rows[is_alone]] = True
        rows, codes = rows[~is_alone], codes[~is_alone]
        if not rows.size:
            return won
    last = np.full(distinct, -1)
    np.maximum.at(last, codes, rows)
    won[last[last >= 0]] = True
    return won


def is_as_late(values: Sequence[pa.Array[Any]], others: Sequence[pa.Array[Any]]) -> NDArray[np.bool_]:
    """Return a mask of the rows that are as late as those of `others`, or later, column by column as in `latest`."""
    result = np.zeros(len(values[0]), np.int8)
    for ours, theirs in zip(values, others, strict=True):
        for ranks in _ranks(pa.concat_arrays([ours, theirs])):
            first, second = ranks[: len(ours)], ranks[len(ours) :]
            result = np.where(result == 0, (first > second).view(np.int8) - (first < second).view(np.int8), result)
    return result >= 0


def _with_equal_hashes(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the rows whose hash another row has too."""
    order = np.argsort(hashes)
    in_order = hashes[order]
    is_same = np.zeros(len(hashes) + 1, np.bool_)
    np.equal(in_order[1:], in_order[:-1], out=is_same[1:-1])
    return np.sort(order[is_same[1:] | is_same[:-1]])


def _ranks(values: pa.Array[Any]) -> Iterator[NDArray[np.int64]]:
    """Yield integers in the order of the values: by the first array, where these are equal by the second, and so on."""
    if values.null_count:
        yield mask(values.is_valid()).astype(np.int64)
    if values.null_count == len(values):
        return
    if pa.types.is_decimal128(values.type):
        words = _words(values.fill_null(Decimal(0)))
        yield words[:, 1]
        yield words[:, 0] ^ _LOWEST  # The lower half has no sign.
    elif pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).fill_null(0).to_numpy() + 0.0  # -0.0 becomes 0.0.
        bits = numbers.view(np.int64)
        # Among floats with a sign, a greater integer is a lower number.
        yield np.where(np.isnan(numbers), _LOWEST, bits ^ (bits >> 63 & ~_LOWEST))
    elif pa.types.is_integer((canonical := canonical_keys([values])).type):
        yield canonical.fill_null(0).to_numpy()
    else:
        yield pc.rank(canonical, tiebreaker="dense").to_numpy().astype(np.int64)


def _words(decimals: pa.Array[Any]) -> NDArray[np.int64]:
    """Return the two halves of 128-bit decimals, the lower one first."""
    content: Any = decimals.buffers()[1]
    words: NDArray[np.int64] = np.frombuffer(content, np.int64).reshape(-1, 2)
    return words[decimals.offset : decimals.offset + len(decimals)]
