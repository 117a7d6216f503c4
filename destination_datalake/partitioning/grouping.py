"""Grouping of a table's rows by partition, vectorized."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.partitioning.spec import (
    Bucket,
    CalendarPart,
    Identity,
    PartitionField,
    PartitionValue,
    Transform,
    Void,
)
from destination_datalake.partitioning.transforms import is_one_period, transformed

if TYPE_CHECKING:
    from numpy.typing import NDArray


def by_partition(
    table: pa.Table, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[PartitionValue, ...], pa.Table]]:
    """Yield each partition's values in the order of `fields`, with its rows in the order of `table`.

    Partitions are ordered by their first rows. Contiguous rows are not copied. A source column that the table does not
    have is null. 0.0 and -0.0 are equal in Python but different partitions in Iceberg; `repr` of the values
    distinguishes them. Raises ValueError like `transformed`.
    """
    if table.num_rows == 0:
        return
    sources = [(source_values(table, field.source), field.transform) for field in fields]
    if all(_is_constant(source, transform) for source, transform in sources):
        (values,) = _rows([transformed(source[:1], transform) for source, transform in sources])
        yield values, table
        return
    columns = [transformed(source, transform) for source, transform in sources]
    codes = _codes(columns)
    starts = firsts = np.flatnonzero(np.diff(codes, prepend=-1))
    if len(starts) > codes.max() + 1:
        # NumPy uses the faster radix sort for 16-bit integers.
        order = np.argsort(codes.astype(np.uint16) if codes.max() < 2**16 else codes, kind="stable")
        sizes = np.bincount(codes)
        table = table.combine_chunks().take(order)
        starts = np.cumsum(sizes) - sizes
        firsts = order[starts]
    rows = _rows([column.take(firsts) for column in columns])
    for values, start, end in zip(rows, starts.tolist(), [*starts[1:].tolist(), table.num_rows], strict=True):
        yield values, table.slice(start, end - start)


def source_values(table: pa.Table, path: tuple[str, ...]) -> pa.Array[Any]:
    """Return the values at a path of names, null where a struct on the path is null."""
    if path[0] not in table.column_names:
        return pa.nulls(table.num_rows)
    values: Any = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        if values.type.get_field_index(name) < 0:
            return pa.nulls(table.num_rows)
        values = pc.struct_field(values, name)
    array: pa.Array[Any] = values
    return array


def _is_constant(source: pa.Array[Any], transform: Transform) -> bool:
    """Return whether all rows have the same transformed value, by a cheap check that may wrongly return False."""
    if isinstance(transform, Void) or source.null_count == len(source):
        return True
    if source.null_count:
        return False
    if pa.types.is_floating(source.type):  # As bits, NaN equals itself, and -0.0 differs from 0.0.
        source = source.view(pa.int64() if source.type.bit_width == 64 else pa.int32())
    if not _is_equal(transformed(pa.concat_arrays([source[:1], source[-1:]]), transform)):
        return False
    extremes = pc.min_max(source)
    bounds: pa.Array[Any] = pa.array([extremes["min"], extremes["max"]], source.type)
    match transform:
        case CalendarPart():
            return is_one_period(bounds, transform)
        case Bucket():
            return _is_equal(transformed(bounds, Identity()))
    return _is_equal(transformed(bounds, transform))


def _is_equal(pair: pa.Array[Any]) -> bool:
    return bool(pair[0] == pair[1])


def _codes(columns: Sequence[pa.Array[Any]]) -> NDArray[np.int64]:
    """Return a number for each row's combination of values, from 0 in order of first appearance."""
    codes: NDArray[np.int64] | None = None
    for column in columns:
        encoded = column.dictionary_encode("encode")
        indices = encoded.indices.to_numpy().astype(np.int64)
        if codes is None:
            codes = indices
        else:
            pairs = pa.array(codes * len(encoded.dictionary) + indices)
            codes = pairs.dictionary_encode().indices.to_numpy().astype(np.int64)
    assert codes is not None
    return codes


def _rows(columns: Sequence[pa.Array[Any]]) -> list[tuple[PartitionValue, ...]]:
    if not columns:
        return [()]
    # The same object for all NaN values, so that tuples with it are equal.
    lists = [[math.nan if value != value else value for value in column.to_pylist()] for column in columns]
    return list(zip(*lists, strict=True))
