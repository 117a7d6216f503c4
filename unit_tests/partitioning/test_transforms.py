"""Transforms are those of Iceberg: equal to PyIceberg's for every type, and to the vectors of the spec."""

from __future__ import annotations

import struct
from datetime import date, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform as pyiceberg_transform
from pyiceberg.types import IntegerType, LongType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from destination_datalake.partitioning.paths import iceberg_text
from destination_datalake.partitioning.spec import Bucket, CalendarPart, Identity, Since1970, Transform, Truncate, Void
from destination_datalake.partitioning.transforms import permits, transformed
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.iceberg import iceberg_type
from destination_datalake.schema.types import ColumnType, Date, Timestamp
from unit_tests.partitioning.values import KINDS, Kind, transforms
from unit_tests.strategies import EXAMPLE_TYPES

TRANSFORMS: list[Transform] = [
    Identity(),
    Bucket(16),
    Truncate(10),
    Since1970("year"),
    Since1970("month"),
    Since1970("day"),
    Since1970("hour"),
    Void(),
]


@given(st.data(), st.sampled_from(KINDS), transforms)
def test_values_are_those_of_pyiceberg(data: st.DataObject, kind: Kind, transform: Transform) -> None:
    iceberg_transform = pyiceberg_transform(str(transform))
    assume(iceberg_transform.can_transform(kind.iceberg) and not isinstance(transform, Void))
    values = data.draw(st.lists(st.none() | kind.values, max_size=20))

    ours = transformed(pa.array(values, kind.arrow), transform)

    expected = [iceberg_transform.transform(kind.iceberg)(in_iceberg_terms(value)) for value in values]
    assert bits(ours.to_pylist()) == bits([wrapped(value, kind) for value in expected])


@given(st.data(), st.sampled_from(KINDS), transforms, st.integers(0, 3))
def test_a_slice_has_the_values_of_its_rows(
    data: st.DataObject, kind: Kind, transform: Transform, skipped: int
) -> None:
    assume(pyiceberg_transform(str(transform)).can_transform(kind.iceberg))
    array = pa.array(data.draw(st.lists(st.none() | kind.values, min_size=3, max_size=20)), kind.arrow)

    of_slice = transformed(array.slice(skipped), transform)

    assert bits(of_slice.to_pylist()) == bits(transformed(array, transform).to_pylist()[skipped:])


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_void_is_null_for_every_type(kind: Kind) -> None:
    assert transformed(pa.array([None] * 3, kind.arrow), Void()).to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    ("value", "type_", "hashed"),
    [
        (34, pa.int32(), 2017239379),
        (34, pa.int64(), 2017239379),
        (Decimal("14.20"), pa.decimal128(9, 2), -500754589),
        (17486, pa.date32(), -653330422),  # 2017-11-16
        (81068000000, pa.time64("us"), -662762989),  # 22:31:08
        (1510871468000000, pa.timestamp("us"), -2047944441),  # 2017-11-16T22:31:08
        (1510871468000001, pa.timestamp("us"), -1207196810),
        (1510871468000000, pa.timestamp("us", "UTC"), -2047944441),
        (1510871468000000000, pa.timestamp("ns"), -2047944441),
        (1510871468000001001, pa.timestamp("ns", "UTC"), -1207196810),
        ("iceberg", pa.string(), 1210000089),
        (UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, pa.binary(16), 1488055340),
        (b"\x00\x01\x02\x03", pa.binary(), -188683207),
    ],
)
def test_hashes_are_those_of_the_specification(value: Any, type_: pa.DataType, hashed: int) -> None:
    # Iceberg spec, Appendix B: 32-bit hash requirements.
    (bucket,) = transformed(pa.array([value], type_), Bucket(2**31 - 1)).to_pylist()

    assert bucket == (hashed & 0x7FFFFFFF) % (2**31 - 1)


@pytest.mark.parametrize(
    ("value", "type_", "width", "truncated"),
    [
        (1, pa.int32(), 10, 0),
        (-1, pa.int32(), 10, -10),
        (-10, pa.int64(), 10, -10),
        (-(2**31), pa.int32(), 10, 2**31 - 2),  # wraps around, as Java's int does
        (-(2**63), pa.int64(), 10, 2**63 - 2),
        (Decimal("10.65"), pa.decimal128(9, 2), 50, Decimal("10.50")),
        (Decimal("-0.05"), pa.decimal128(9, 2), 10, Decimal("-0.10")),
        (Decimal("-9"), pa.decimal128(1, 0), 10, Decimal("-10")),
        (Decimal(10**38 - 1), pa.decimal128(38, 0), 2**31 - 1, Decimal((10**38 - 1) // (2**31 - 1) * (2**31 - 1))),
        ("iceberg", pa.string(), 3, "ice"),
        ("🧊🧊🧊", pa.string(), 2, "🧊🧊"),
        (b"\x01\x02\x03", pa.binary(), 2, b"\x01\x02"),
    ],
)
def test_truncation_rounds_towards_the_smaller(value: Any, type_: pa.DataType, width: int, truncated: Any) -> None:
    assert transformed(pa.array([value], type_), Truncate(width)).to_pylist() == [truncated]


_ENDS = [(pa.int32(), 2**31), (pa.int64(), 2**63), (pa.date32(), 2**31), (pa.timestamp("us"), 2**63)]


@pytest.mark.parametrize("width", [1, 10, 999_999_999, 2**31 - 2, 2**31 - 1])
@pytest.mark.parametrize(("type_", "end"), _ENDS[:2])
def test_truncation_at_the_ends_wraps_around_as_java_does(type_: pa.DataType, end: int, width: int) -> None:
    """Iceberg's `TruncateUtil` computes v - (((v % W) + W) % W) in the type of the column."""
    values = [-end, -end + 1, -1, 0, 1, end - 2, end - 1]

    def wrapped(value: int) -> int:
        return (value + end) % (2 * end) - end

    def java_remainder(value: int) -> int:
        return abs(value) % width * (-1 if value < 0 else 1)

    expected = [wrapped(value - java_remainder(wrapped(java_remainder(value) + width))) for value in values]

    assert transformed(pa.array(values, type_), Truncate(width)).to_pylist() == expected


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (9, 9), (18, 2), (38, 0), (38, 38)])
def test_truncation_at_the_ends_of_decimals_takes_a_digit_more(precision: int, scale: int) -> None:
    largest = 10**precision - 1
    values, exact = [-largest, -1, 0, 1, largest], Context(prec=76)
    array = pa.array([Decimal(value).scaleb(-scale, exact) for value in values], pa.decimal128(precision, scale))

    for width in (1, 10, 2**31 - 1):
        expected = [Decimal(value - value % width).scaleb(-scale, exact) for value in values]
        assert transformed(array, Truncate(width)).to_pylist() == expected


@pytest.mark.parametrize(("type_", "end"), _ENDS[2:])
def test_periods_at_the_ends_are_counted_from_1970(type_: pa.DataType, end: int) -> None:
    """Far beyond the years that the connector writes; files of other writers may have them."""
    values = [-end, -end + 1, -1, 0, 1, end - 1]
    array = pa.array(values, pa.int64() if end == 2**63 else pa.int32()).view(type_)
    days = [value // 86_400_000_000 if end == 2**63 else value for value in values]
    # The calendar repeats itself after 400 years, which have 146,097 days.
    cycles = [divmod(day - 10_957, 146_097) for day in days]
    dates = [(cycle * 400, date(2000, 1, 1) + timedelta(day)) for cycle, day in cycles]
    months = [(day.year + shift - 1970) * 12 + day.month - 1 for shift, day in dates]

    assert transformed(array, Since1970("day")).to_pylist() == days
    assert transformed(array, Since1970("month")).to_pylist() == months
    assert transformed(array, Since1970("year")).to_pylist() == [month // 12 for month in months]
    assert transformed(array, CalendarPart("day")).to_pylist() == [day.day for _, day in dates]
    if end == 2**63:
        assert transformed(array, Since1970("hour")).to_pylist() == [value // 3_600_000_000 for value in values]
    texts = [iceberg_text(value, Identity(), Date() if end == 2**31 else Timestamp(zoned=True)) for value in values]
    assert len(set(texts)) == len(texts)
    assert "NaT" not in "".join(texts)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array(["a", None, "b"], pa.string_view()),
    ],
)
def test_other_encodings_of_text_have_the_same_values(array: pa.Array[Any]) -> None:
    for transform in (Identity(), Bucket(16), Truncate(1)):
        expected = transformed(pa.array(["a", None, "b"]), transform)
        assert transformed(array, transform).equals(expected)


@pytest.mark.parametrize("column_type", EXAMPLE_TYPES, ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_what_a_type_permits_is_what_iceberg_permits(column_type: ColumnType, transform: Transform) -> None:
    array = pa.array([None], arrow_type(column_type))
    iceberg_transform = pyiceberg_transform(str(transform))

    assert permits(transform, column_type) == iceberg_transform.can_transform(
        iceberg_type(column_type, iter(range(9)).__next__)
    )
    if permits(transform, column_type):
        assert transformed(array, transform).to_pylist() == [None]
    else:
        with pytest.raises(ValueError, match="is not defined"):
            transformed(array, transform)


def in_iceberg_terms(value: Any) -> Any:
    """Return what PyIceberg's transforms take: its own integers for dates and times."""
    for name, convert in (("datetime", datetime_to_micros), ("date", date_to_days), ("time", time_to_micros)):
        if type(value).__name__ == name:
            return convert(value)
    return value


def wrapped(value: Any, kind: Kind) -> Any:
    """Return what a Java int or long holds of a value below its smallest; PyIceberg's integers have no end."""
    if value is None or not isinstance(kind.iceberg, IntegerType | LongType):
        return value
    bits = 32 if isinstance(kind.iceberg, IntegerType) else 64
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def bits(values: list[Any]) -> list[Any]:
    """Return values that are equal if they have the same bits: NaN is itself, and -0.0 is not 0.0."""
    return [struct.pack("<d", value) if isinstance(value, float) else value for value in values]
