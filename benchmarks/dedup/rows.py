"""Create the rows for records of a workload directly, because tables start with millions of rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.workload import FIRST_EMITTED_AT, MIXING, POOL, Shape
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import CHANGE, METADATA_COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_CURSOR = 1_704_067_200_000_000
"""2024-01-01 in microseconds since 1970: the day of the table's rows."""

DAY = 86_400_000_000
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)


def rows(shape: Shape, numbers: NDArray[np.int64], cursors: NDArray[np.int64], schema: pa.Schema) -> pa.Table:
    """Return the rows for the records with these numbers, in the columns of `schema`.

    `cursors` are the rows' cursors in microseconds. The rows were extracted a day before the workload's first record.
    """
    mixed = numbers.astype(np.uint64) * np.uint64(MIXING)
    columns: dict[str, Any] = {
        "updated_at": pa.array(cursors, pa.timestamp("us", tz="UTC")),
        "id": numbers,
        "ref": references(numbers),
        "email": pa.array([f"user{number}@example.com" for number in (mixed >> np.uint64(40)).tolist()]),
        "score": (mixed >> np.uint64(11)) / float(1 << 53),
    }
    dice = random.Random(shape.name)
    pool = pa.Table.from_pylist([shape.tail(dice) for _ in range(POOL)])
    tails = pool.take(numbers % POOL)
    columns |= {name: tails.column(name) for name in tails.column_names}
    metadata = (field.name for field in METADATA_COLUMNS)
    columns |= dict(zip(metadata, _metadata(len(numbers)), strict=True))
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)


def references(numbers: NDArray[np.int64]) -> pa.StringArray:
    """Return the values of the field `ref` for the records with these numbers, in the form "%016x%016x"."""
    high = numbers.astype(np.uint64) * np.uint64(MIXING)
    low = high ^ (numbers.astype(np.uint64) << np.uint64(20))
    octets = np.stack([high, low], axis=1).astype(">u8").view(np.uint8)
    return _texts(_HEX[octets].view(np.uint8))


def _metadata(count: int) -> Sequence[pa.Array[Any]]:
    prefix = np.frombuffer(b"0190163d-8694-739b-aea5-966c", np.uint8)
    counters = _HEX[np.arange(count, dtype=">u4").view(np.uint8).reshape(count, 4)].view(np.uint8)
    ids = _texts(np.concatenate([np.tile(prefix, (count, 1)), counters], axis=1))
    extracted = (np.arange(count) + FIRST_EMITTED_AT) * 1000 - DAY
    no_changes = pa.array([[]], pa.list_(arrow_type(CHANGE))).take(np.zeros(count, np.int64))
    sync_ids = pa.array(np.ones(count, np.int64))
    meta = pa.StructArray.from_arrays([sync_ids, no_changes], ["sync_id", "changes"])
    return [ids, pa.array(extracted, pa.timestamp("us", tz="UTC")), meta, sync_ids]


def _texts(characters: NDArray[np.uint8]) -> pa.StringArray:
    count, length = characters.shape
    offsets = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    buffers = pa.py_buffer(offsets.data), pa.py_buffer(characters.tobytes())
    return pa.StringArray.from_buffers(count, *buffers)
