"""Which stored files may have rows of the keys in an index, by the metrics that manifests have of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Self

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of a key: their field ids, and the types that they have now.

    A file may have been written with a narrower type: how long a bound is says which (Iceberg spec: Schema Evolution).
    """

    columns: tuple[tuple[int, PrimitiveType], ...]

    @classmethod
    def of(cls, key: Sequence[int], schema: Schema) -> Self:
        """Return the columns of these ids, which are of primitive types."""
        types = ((id_, schema.find_type(id_)) for id_ in key)
        return cls(tuple((id_, type_) for id_, type_ in types if isinstance(type_, PrimitiveType)))

    def may_have(self, file: IcebergFile, part: IndexPart) -> bool:
        """Whether the file may have a row of a key in this part of the index."""
        return part.rows > 0 and all(
            _may_have(file, id_, type_, bounds) for (id_, type_), bounds in zip(self.columns, part.bounds, strict=True)
        )


def _may_have(file: IcebergFile, id_: int, type_: PrimitiveType, bounds: KeyBounds) -> bool:
    """Whether a column of the file may have null, NaN, or a value between the bounds, whichever these ask for."""
    values = (file.value_counts or {}).get(id_)
    nulls, nans = (file.null_value_counts or {}).get(id_), (file.nan_value_counts or {}).get(id_)
    if (bounds.has_null and nulls != 0) or (bounds.has_nan and nans != 0):
        return True
    if bounds.lowest is None or (values is not None and nulls == values):
        return False
    lower, upper = (file.lower_bounds or {}).get(id_), (file.upper_bounds or {}).get(id_)
    try:
        return not (
            (upper is not None and from_bytes(type_, upper) < _as_stored(bounds.lowest))
            or (lower is not None and from_bytes(type_, lower) > _as_stored(bounds.highest))
        )
    except (TypeError, ValueError, ArithmeticError, struct.error):
        return True  # Of a type that bounds cannot be compared with, or bytes that are no value of the column's.


def _as_stored(value: Any) -> Any:
    """Return a value as bounds in manifests have it."""
    match value:
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
    return value
