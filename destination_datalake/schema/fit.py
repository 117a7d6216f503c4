"""The narrowest types that hold a block's values exactly.

A column that starts as a 32-bit integer or float is stored so for as long as all its values are the same in 32 bits;
the first value that would not be makes the column wide, before it is stored.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.schema.types import ColumnType, Field, Float32, Float64, Int32, Int64, List, Struct

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def fit(array: pa.Array[Any], type_: ColumnType) -> ColumnType:
    """Return `type_` with every number in it that `array` outgrows widened. `array` is as wide as can be."""
    match type_:
        case Int32():
            bounds = pc.min_max(array)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            return type_ if low is None or (low >= _INT32_MIN and high <= _INT32_MAX) else Int64()
        case Float32():
            narrow = array.cast(pa.float32(), safe=False).cast(pa.float64())
            same = pc.or_(pc.equal(narrow, array), pc.is_nan(array))
            return type_ if pc.all(same).as_py() is not False else Float64()
        case Struct(fields):
            members = cast("pa.StructArray", array)
            fitted = (Field(f.name, f.source, fit(members.field(i), f.type)) for i, f in enumerate(fields))
            return Struct(tuple(fitted))
        case List(element):
            return List(fit(cast("pa.ListArray[Any]", array).values, element))
        case _:
            return type_
