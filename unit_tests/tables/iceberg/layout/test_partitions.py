"""Partitioned Iceberg tables: what readers find, and which files they have to read for it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any

import pytest

from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    String,
    Struct,
    Timestamp,
)
from unit_tests.tables.iceberg.lake import Lake

ID = Field("id", "id", Int64())


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


MOMENTS = [moment("1969-12-31T23:59:59.999999"), moment("1970-01-01"), moment("2024-02-29T23:00"), None]
ZONED = [utc("1969-12-31T23:59:59.999999"), utc("1970-01-01"), utc("2024-02-29T23:00"), None]
DAYS = [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), None]


@pytest.mark.parametrize(
    ("type_", "transform", "values", "files_read"),
    [
        (Boolean(), "identity", [True, False, None], {"x = true": 1, "x is null": 1}),
        (Int32(), "identity", [-1, 0, 2**31 - 1, None], {"x = -1": 1, "x >= 0": 2, "x is null": 1}),
        (Int64(), "identity", [-(2**63), 2**63 - 1, None], {"x < 0": 1, "x is not null": 2}),
        (Int64(), "bucket[16]", [1, 2, 34, None], {"x = 34": 1, "x is null": 1, "x in (1, 34)": 2}),
        (Int32(), "truncate[10]", [-1, 0, 9, 10, None], {"x = -1": 1, "x < 10": 2, "x = 9": 1, "x is null": 1}),
        (Float32(), "identity", [0.5, float("nan"), None], {"x = 0.5": 1, "x is nan": 1, "x is null": 1}),
        (Float64(), "identity", [-0.5, 1e300, float("nan")], {"x < 0": 1, "x is nan": 1, "x is null": 0}),
        (Decimal(9, 2), "identity", [Number("-1.50"), Number("2.00"), None], {"x < 0": 1, "x is null": 1}),
        (Decimal(38, 9), "bucket[8]", [Number("1.000000000"), Number("-7.000000000")], {"x = 1.000000000": 1}),
        (Decimal(9, 2), "truncate[100]", [Number("-0.50"), Number("0.99"), Number("1.00")], {"x = 0.50": 1}),
        (String(), "identity", ["", "a=b/c %", "日本", None], {"x = ''": 1, "x = '日本'": 1, "x is null": 1}),
        (String(), "truncate[2]", ["ab", "abc", "日本語", None], {"x = 'abc'": 1, "x = '日本語'": 1, "x < 'b'": 1}),
        (String(), "bucket[4]", ["iceberg", "", None], {"x = 'iceberg'": 1, "x is null": 1}),
        (Date(), "identity", DAYS, {"x = '1969-12-31'": 1, "x >= '1970-01-01'": 2, "x is null": 1}),
        (Date(), "year", DAYS, {"x < '1970-01-01'": 1, "x = '2024-01-01'": 1, "x is null": 1}),
        (Date(), "month", DAYS, {"x = '2024-02-01'": 1, "x > '2024-03-01'": 0}),
        (Date(), "day", DAYS, {"x = '2024-02-29'": 1, "x = '2024-02-28'": 0}),
        (Date(), "bucket[64]", DAYS, {"x = '2024-02-29'": 1}),
        (Timestamp(zoned=False), "identity", MOMENTS, {"x = '1970-01-01T00:00:00'": 1, "x is null": 1}),
        (Timestamp(zoned=False), "hour", MOMENTS, {"x > '2024-02-29T23:30:00'": 1, "x is null": 1}),
        (Timestamp(zoned=True), "identity", ZONED, {"x = '1970-01-01T00:00:00+00:00'": 1}),
        (Timestamp(zoned=True), "year", ZONED, {"x < '1970-01-01T00:00:00+00:00'": 1}),
        (Timestamp(zoned=True), "month", ZONED, {"x < '1970-01-01T00:00:00+00:00'": 1}),
        (Timestamp(zoned=True), "day", ZONED, {"x > '2024-02-29T00:00:00+00:00'": 1}),
        (Timestamp(zoned=True), "hour", ZONED, {"x >= '2024-02-29T23:00:00+00:00'": 1, "x is null": 1}),
        (Timestamp(zoned=True), "bucket[64]", ZONED, {"x = '1970-01-01T00:00:00+00:00'": 1}),
    ],
    ids=lambda value: str(value) if isinstance(value, str | ColumnType) else "",
)
def test_readers_find_the_rows_and_leave_out_the_files_of_other_partitions(
    lake: Lake, type_: ColumnType, transform: str, values: list[Any], files_read: dict[str, int]
) -> None:
    columns = (ID, Field("x", "x", type_))
    opened = lake.open(columns=columns, partition_by=[{"source": "x", "transform": transform}])

    lake.commit_rows(opened, *({"id": number, "x": value} for number, value in enumerate(values)))

    rows = lake.load().scan(selected_fields=("id", "x")).to_arrow().sort_by("id").to_pylist()
    assert [str(row["x"]) for row in rows] == [str(value) for value in values]
    assert {each: lake.scanned(each) for each in files_read} == files_read


def test_a_partition_field_can_be_inside_structs(lake: Lake) -> None:
    buyer = Field("buyer", "buyer", Struct((Field("home", "home", Struct((Field("land", "land", String()),))),)))
    opened = lake.open(columns=(ID, buyer), partition_by=[{"source": "buyer.home.land"}])

    lake.commit_rows(
        opened,
        {"id": 1, "buyer": {"home": {"land": "fr"}}},
        {"id": 2, "buyer": {"home": {"land": "pt"}}},
        {"id": 3, "buyer": {"home": None}},
        {"id": 4, "buyer": None},
    )

    assert lake.ids() == [1, 2, 3, 4]
    assert lake.scanned("buyer.home.land = 'pt'") == 1
    assert lake.scanned("buyer.home.land is null") == 1
