"""Keys in canonical form: two rows have one key if, and only if, Arrow finds the canonical values equal.

Null equals null, -0.0 equals 0.0, and NaN equals NaN. Texts are equal if their bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_WORD = 8
_LONG_BYTES = 512
"""Longer keys are hashed one by one, shorter ones all at the same time."""

_BLOCK_ROWS = 65_536
"""How many keys are hashed at a time, which bounds the memory for that."""

_MOST_BYTES = 2**31 - 1
"""What an Arrow array of binary values holds: numpy would not notice more."""

_LOW_HALF = np.uint64(2**32 - 1)
_NULL_HASH = np.uint64(0x5851F42D4C957F2D)
_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def canonical_keys(columns: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]]) -> pa.Array[Any]:
    """Return the keys of rows, given the columns of the key: an array of 64-bit integers or of binary values.

    A column that is promoted (Iceberg spec: Schema Evolution, int to long, float to double, decimals of more digits)
    gives the same keys. A key of one column is null where that is, and shares its memory if it can; one of several
    columns is never null. Raises TypeError for nested columns, and OverflowError or an error of Arrow for more than
    2 GiB of keys.
    """
    parts = [_canonical(one_array(column)) for column in columns]
    return parts[0] if len(parts) == 1 else _joined(parts)


def key_hashes(keys: pa.Array[Any]) -> NDArray[np.uint64]:
    """Return a hash of each of the canonical keys: the same for equal ones, however their array was made."""
    hashes = np.empty(len(keys), np.uint64)
    for start in range(0, len(keys), _BLOCK_ROWS):
        block = keys.slice(start, _BLOCK_ROWS)
        if pa.types.is_integer(keys.type):
            words = block.fill_null(0).to_numpy().view(np.uint64)
            hashes[start : start + _BLOCK_ROWS] = _finished(words * _MULTIPLIERS[0])
        else:
            hashes[start : start + _BLOCK_ROWS] = _hashes_of_bytes(block)
    if keys.null_count:
        hashes[mask(keys.is_null())] = _NULL_HASH
    return hashes


def part_numbers(hashes: NDArray[np.uint64], parts: int) -> NDArray[np.int64]:
    """Return for each hash of a key which of `parts` parts the key belongs to, from 0."""
    return ((hashes & _LOW_HALF) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def one_array(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """Return a column as one array, without a copy if it is in one piece."""
    if isinstance(column, pa.ChunkedArray):
        combined: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        return cast("pa.Array[Any]", combined)
    return column


def _canonical(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column as 64-bit integers or as binary values, null where it is."""
    types, type_ = pa.types, column.type
    if types.is_integer(type_) or types.is_boolean(type_) or types.is_null(type_):
        return column.cast(pa.int64())
    if types.is_floating(type_):
        return _bits_of_floats(column)
    if types.is_date32(type_) or types.is_time32(type_):
        return column.view(pa.int32()).cast(pa.int64())
    if types.is_timestamp(type_) or types.is_time64(type_) or types.is_date64(type_):
        return column.view(pa.int64())
    if types.is_decimal(type_):
        return column.view(pa.binary(type_.byte_width)).cast(pa.binary())
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if any(is_(type_) for is_ in (*texts, types.is_fixed_size_binary)):
        return column.cast(pa.binary())
    raise TypeError(f"{type_} cannot be a key")


def _bits_of_floats(column: pa.Array[Any]) -> pa.Array[Any]:
    values = column.cast(pa.float64()).fill_null(0).to_numpy() + 0.0  # -0.0 becomes 0.0.
    values[np.isnan(values)] = np.nan  # There are many NaNs.
    return pa.array(values.view(np.int64), mask=mask(column.is_null()) if column.null_count else None)


def _joined(parts: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """Return the parts of each key as one binary value, from which they could be had back.

    It begins with a byte for each part that says whether it is null, and the integers of parts that are integers, the
    lengths of those that are not. This head is equally long in all keys; texts follow it.
    """
    if not (rows := len(parts[0])):
        return pa.array([], pa.binary())
    head: list[NDArray[np.uint8]] = []
    texts: list[Any] = []
    for part in parts:
        head.append((~mask(part.is_null())).view(np.uint8).reshape(rows, 1))
        if pa.types.is_integer(part.type):
            values = part.fill_null(0).to_numpy()
        else:
            texts.append(part.fill_null(b""))
            values = pc.binary_length(texts[-1]).to_numpy()
        head.append(np.ascontiguousarray(values).view(np.uint8).reshape(rows, -1))
    content = np.concatenate(head, axis=1)
    if content.size > _MOST_BYTES:
        raise OverflowError(f"{rows} keys of several columns have {content.size} bytes")
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(content.shape[1])
    buffers = [None, pa.py_buffer(cast("Any", offsets)), pa.py_buffer(cast("Any", content))]
    fixed: Any = pa.Array.from_buffers(pa.binary(), rows, buffers)
    return cast("pa.Array[Any]", pc.binary_join_element_wise(fixed, *texts, b"") if texts else fixed)


def mask(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """Return an array of Booleans without nulls as numpy has it."""
    return cast("NDArray[np.bool_]", array.to_numpy(zero_copy_only=False))


def _hashes_of_bytes(keys: pa.Array[Any]) -> NDArray[np.uint64]:
    """Hash words of eight bytes. The last word of a key ends with it, and so may begin before its turn."""
    _, offset_buffer, data_buffer = cast("list[Any]", keys.buffers())
    offsets: NDArray[np.int64] = np.frombuffer(offset_buffer, np.int32)[keys.offset :][: len(keys) + 1].astype(np.int64)
    data = b"" if data_buffer is None else memoryview(data_buffer)[offsets[0] : offsets[-1]]
    # The only word of a key that is shorter begins before it.
    content = np.concatenate((np.zeros(_WORD, np.uint8), np.frombuffer(data, np.uint8)))
    words = np.ndarray((len(content) - _WORD + 1,), "<u8", content, strides=(1,))
    starts, lengths = offsets[:-1] - offsets[0] + _WORD, np.diff(offsets)
    hashes = lengths.astype(np.uint64) * _MULTIPLIERS[1]
    if (width := int(lengths[0])) == lengths.min() == lengths.max() and 0 < width <= _LONG_BYTES and not width % _WORD:
        for word in content[_WORD:].view("<u8").reshape(len(keys), -1).T:  # As below, and several times as fast.
            hashes = _mixed(hashes, word)
        return _finished(hashes)
    shifts = (np.maximum(_WORD - lengths, 0) * _WORD).astype(np.uint64) if lengths.min() < _WORD else None
    hashed = np.where(lengths > _LONG_BYTES, 0, (lengths + _WORD - 1) // _WORD)
    fewest = int(hashed.min())
    rest: Any = slice(None)
    for number in range(int(hashed.max())):
        if number >= fewest:
            rest = np.flatnonzero(hashed > number) if isinstance(rest, slice) else rest[hashed[rest] > number]
        word = words[starts[rest] + np.minimum(number * _WORD, lengths[rest] - _WORD)]
        if shifts is not None and number == 0:
            word >>= shifts[rest]
        hashes[rest] = _mixed(hashes[rest], word)
    for row in np.flatnonzero(lengths > _LONG_BYTES).tolist():
        key = content[starts[row] : starts[row] + lengths[row]].tobytes()
        digest = blake2b(key, digest_size=_WORD).digest()
        hashes[row] = int.from_bytes(digest, "little")
    return _finished(hashes)


def _mixed(hashes: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = (hashes ^ words) * _MULTIPLIERS[0]
    return mixed ^ (mixed >> np.uint64(29))


def _finished(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    hashes = (hashes ^ (hashes >> np.uint64(30))) * _MULTIPLIERS[1]
    hashes = (hashes ^ (hashes >> np.uint64(27))) * _MULTIPLIERS[2]
    return hashes ^ (hashes >> np.uint64(31))
