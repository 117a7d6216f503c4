"""Which files may have rows of the keys in an index, by the metrics in manifests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds
from destination_datalake.tables.iceberg.dedup.plan import KeyColumns

ROWS = 10
NAN = float("nan")


def file_with(lower: Mapping[int, bytes], upper: Mapping[int, bytes], **counts: Mapping[int, int]) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="s3://lake/file.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=ROWS,
        file_size_in_bytes=1,
        lower_bounds=dict(lower),
        upper_bounds=dict(upper),
        value_counts=counts.get("value_counts", dict.fromkeys(lower, ROWS)),
        null_value_counts=counts.get("null_value_counts", dict.fromkeys(lower, 0)),
        nan_value_counts=counts.get("nan_value_counts"),
    )


def index(*bounds: KeyBounds) -> IndexPart:
    return IndexPart(0, 1, 5, 100, bounds)


def keys(low: Any, high: Any, *, null: bool = False, nan: bool = False) -> KeyBounds:
    return KeyBounds(low, high, null, nan)


def key_columns(*types: PrimitiveType) -> KeyColumns:
    fields = [NestedField(number, f"k{number}", type_) for number, type_ in enumerate(types, start=1)]
    return KeyColumns.of([field.field_id for field in fields], Schema(*fields))


@pytest.mark.parametrize(
    ("now", "then", "low", "high", "before", "inside", "after"),
    [
        (LongType(), LongType(), 10, 20, (1, 9), (20, 30), (21, 30)),
        (LongType(), IntegerType(), 10, 20, (-5, 9), (15, 16), (2**40, 2**41)),
        (DoubleType(), FloatType(), 0.5, 1.5, (-1.0, 0.25), (-1.0, 0.5), (2.0, 3.0)),
        (DecimalType(9, 2), DecimalType(5, 2), Decimal("1.50"), Decimal("2.50"), (Decimal("1.49"),) * 2,
         (Decimal("2.5"),) * 2, (Decimal("2.51"),) * 2),
        (DateType(), DateType(), 20000, 20010, (date(1970, 1, 1),) * 2, (date(2024, 10, 4),) * 2,
         (date(2030, 1, 1),) * 2),
        (TimestamptzType(), TimestamptzType(), 10**15, 2 * 10**15, (datetime(2000, 1, 1, tzinfo=UTC),) * 2,
         (datetime(2010, 1, 1, tzinfo=UTC),) * 2, (datetime(2040, 1, 1, tzinfo=UTC),) * 2),
        (StringType(), StringType(), "bb", "dd", ("a", "b"), ("a", "cc"), ("é", "😀")),
        (StringType(), StringType(), "\uffff", "😀", ("é", "é"), ("😀", "😁"), ("😁", "😁")),
    ],
    ids=["long", "promoted int", "promoted float", "decimal", "date", "timestamp", "string", "code points"],
)  # fmt: skip
def test_a_file_is_looked_at_if_its_bounds_meet_those_of_the_index(
    now: PrimitiveType, then: PrimitiveType, low: Any, high: Any, before: Any, inside: Any, after: Any
) -> None:
    file = file_with({1: to_bytes(then, low)}, {1: to_bytes(then, high)})
    columns = key_columns(now)

    assert [columns.may_have(file, index(keys(*each))) for each in (before, inside, after)] == [False, True, False]


@pytest.mark.parametrize(
    ("counts", "bounds", "looked_at"),
    [
        ({}, keys(None, None, null=True), False),
        ({"null_value_counts": {1: 1}}, keys(None, None, null=True), True),
        ({"null_value_counts": {}}, keys(None, None, null=True), True),
        ({}, keys(50, 60, null=True), False),
        ({"null_value_counts": {1: ROWS}}, keys(10, 20), False),
        ({"nan_value_counts": {1: 0}}, keys(None, None, nan=True), False),
        ({"nan_value_counts": {1: 1}}, keys(None, None, nan=True), True),
        ({}, keys(None, None, nan=True), True),
    ],
)
def test_null_and_nan_are_keys_of_their_own(counts: Any, bounds: KeyBounds, *, looked_at: bool) -> None:
    file = file_with({1: to_bytes(DoubleType(), 10.0)}, {1: to_bytes(DoubleType(), 20.0)}, **counts)

    assert key_columns(DoubleType()).may_have(file, index(bounds)) is looked_at


def test_each_part_of_a_key_can_rule_a_file_out() -> None:
    low, high = to_bytes(LongType(), 10), to_bytes(LongType(), 20)
    file, columns = file_with({1: low, 2: low}, {1: high, 2: high}), key_columns(LongType(), LongType())

    assert columns.may_have(file, index(keys(15, 15), keys(15, 15)))
    assert not columns.may_have(file, index(keys(15, 15), keys(5, 5)))


def test_a_file_without_bounds_is_looked_at() -> None:
    assert key_columns(LongType()).may_have(file_with({}, {}), index(keys(1, 2)))


def test_bounds_that_cannot_be_compared_rule_nothing_out() -> None:
    file = file_with({1: to_bytes(LongType(), 1)}, {1: to_bytes(LongType(), 2)})

    assert key_columns(LongType()).may_have(file, index(keys("a", "b")))


@pytest.mark.parametrize("type_", [LongType(), DoubleType(), StringType()])
def test_bounds_that_are_no_values_of_the_column_rule_nothing_out(type_: PrimitiveType) -> None:
    file = file_with({1: b"\xff"}, {1: b"\xff"})

    assert key_columns(type_).may_have(file, index(keys(1, 2)))


def test_an_index_without_keys_needs_no_file() -> None:
    assert not key_columns(LongType()).may_have(file_with({}, {}), IndexPart(0, 1, 0, 0, (keys(None, None),)))
