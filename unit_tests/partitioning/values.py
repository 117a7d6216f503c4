"""Columns of every type that has a transform, with their Iceberg types and random values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from destination_datalake.partitioning.paths import PartitionFolders, PartitionKey
from destination_datalake.partitioning.spec import (
    Bucket,
    CalendarPart,
    Identity,
    PartitionField,
    Since1970,
    Transform,
    Truncate,
    Void,
)
from destination_datalake.partitioning.templates import PathTemplate
from destination_datalake.schema.types import String, Timestamp


@dataclass(frozen=True)
class Kind:
    """A type of column in Arrow and in Iceberg, and its values in Python's terms."""

    arrow: pa.DataType
    iceberg: IcebergType
    values: st.SearchStrategy[Any]

    def __repr__(self) -> str:
        return str(self.iceberg)


def integers(bits: int) -> st.SearchStrategy[int]:
    smallest, largest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.integers(smallest, largest) | st.sampled_from([smallest, -1, 0, 1, largest]) | st.integers(-300, 300)


def decimal(precision: int, scale: int) -> Kind:
    largest = 10**precision - 1
    unscaled = st.integers(-largest, largest) | st.integers(-min(largest, 300), min(largest, 300))
    edges = st.sampled_from([0, -1, *(sign * min(2**bits, largest) for sign in (1, -1) for bits in range(7, 127, 8))])
    values = (unscaled | edges).map(lambda number: Decimal(f"{number}e-{scale}"))
    return Kind(pa.decimal128(precision, scale), DecimalType(precision, scale), values)


moments = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)) | st.datetimes(
    dt.datetime(1969, 12, 31, 22), dt.datetime(1970, 1, 1, 2)
)
dates = st.dates() | st.dates(dt.date(1969, 12, 1), dt.date(1970, 2, 1))
texts = st.text() | st.text(max_size=3) | st.sampled_from(["", "a\u0301", "🏳️‍🌈", "日本語", "a" * 100])

BOOLEAN = Kind(pa.bool_(), BooleanType(), st.booleans())
INT = Kind(pa.int32(), IntegerType(), integers(32))
LONG = Kind(pa.int64(), LongType(), integers(64))
FLOAT = Kind(pa.float32(), FloatType(), st.floats(width=32))
DOUBLE = Kind(pa.float64(), DoubleType(), st.floats())
DECIMALS = [decimal(2, 0), decimal(9, 2), decimal(18, 18), decimal(38, 0), decimal(38, 18)]
STRING = Kind(pa.string(), StringType(), texts)
DATE = Kind(pa.date32(), DateType(), dates)
ZONED = Kind(pa.timestamp("us", "UTC"), TimestamptzType(), moments.map(lambda moment: moment.replace(tzinfo=dt.UTC)))
LOCAL = Kind(pa.timestamp("us"), TimestampType(), moments)
TIME = Kind(pa.time64("us"), TimeType(), st.times())
BINARY = Kind(pa.binary(), BinaryType(), st.binary())
FIXED = Kind(pa.binary(16), FixedType(16), st.binary(min_size=16, max_size=16))

KINDS = (BOOLEAN, INT, LONG, FLOAT, DOUBLE, *DECIMALS, STRING, DATE, ZONED, LOCAL, TIME, BINARY, FIXED)

buckets = st.integers(1, 40) | st.sampled_from([2**31 - 1, 999_999_999])
widths = st.integers(1, 40) | st.sampled_from([2**31 - 1, 999_999_999, 1000])
transforms: st.SearchStrategy[Transform] = st.one_of(
    st.just(Identity()),
    st.builds(Bucket, buckets),
    st.builds(Truncate, widths),
    st.sampled_from([Since1970("year"), Since1970("month"), Since1970("day"), Since1970("hour"), Void()]),
)


def template_folders(template: str, *, projected: bool = True) -> PartitionFolders:
    """Return the folders of a template: parts of a timestamp, and a key of texts with any other name."""
    parsed = PathTemplate.parse(f"{{database}}/{{table}}/{template}")
    widths = {"year": 4, "month": 2, "day": 2, "hour": 2, "date": 0}
    keys = []
    for name in parsed.variables:
        transform: Any = CalendarPart(name, digits=widths[name]) if name in widths else Identity()  # type: ignore[arg-type]
        source = Timestamp(zoned=True) if name in widths else String()
        keys.append(PartitionKey(PartitionField(name, ("at",), transform), String(), source, projected))
    return PartitionFolders.from_template(parsed, keys)
