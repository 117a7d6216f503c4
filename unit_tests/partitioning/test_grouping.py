"""Groups of rows are a partition of them: each row is in the one group that has its values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.partitioning.spec import (
    Bucket,
    CalendarPart,
    Identity,
    PartitionField,
    PartitionValue,
    Since1970,
    Transform,
    Truncate,
    Void,
)
from destination_datalake.partitioning.transforms import by_partition, transformed
from unit_tests.partitioning.values import (
    BINARY,
    BOOLEAN,
    DATE,
    DECIMALS,
    DOUBLE,
    FLOAT,
    INT,
    LOCAL,
    STRING,
    ZONED,
    Kind,
)

ZONE = "Europe/Berlin"
FIELDS: list[tuple[Kind, Transform]] = [
    *((kind, Identity()) for kind in (BOOLEAN, INT, FLOAT, DOUBLE, DECIMALS[-1], STRING, DATE, ZONED, BINARY)),
    *((kind, Bucket(3)) for kind in (INT, STRING, DECIMALS[1])),
    *((kind, Truncate(2)) for kind in (INT, STRING, DECIMALS[1], BINARY)),
    *((ZONED, Since1970(unit)) for unit in ("year", "month", "day", "hour")),
    *((ZONED, CalendarPart(part, ZONE)) for part in ("year", "month", "day", "hour", "date")),
    *((LOCAL, CalendarPart(part, ZONE)) for part in ("month", "hour")),
    (DATE, CalendarPart("month")),
    (INT, Void()),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[PartitionField]]:
    """A table with few different values in each source, some of them close to each other, and fields over them."""
    chosen = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3))
    rows = draw(st.integers(0, 12))
    columns: dict[str, pa.Array[Any]] = {"row": pa.array(range(rows), pa.int64())}
    fields = []
    for number, (kind, transform) in enumerate(chosen):
        pool = draw(st.lists(kind.values, min_size=1, max_size=3)) + draw(st.sampled_from([[], [None]]))
        if kind is ZONED and isinstance(pool[0], dt.datetime) and 1 < pool[0].year < 9999:
            pool += [pool[0] + dt.timedelta(minutes=minutes) for minutes in (1, 59)]
        values = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
        columns[f"c{number}"] = pa.array(values, kind.arrow)
        fields.append(PartitionField(f"p{number}", (f"c{number}",), transform))
    return pa.table(columns), fields


@given(tables())
def test_groups_are_a_partition_of_the_rows_by_their_values(given_table: tuple[pa.Table, list[PartitionField]]) -> None:
    table, fields = given_table

    groups = list(by_partition(table, fields))

    expected: dict[str, list[int]] = {}
    columns = [transformed(table.column(field.source[0]).combine_chunks(), field.transform) for field in fields]
    for row, values in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        expected.setdefault(repr(values), []).append(row)
    assert {repr(values): rows.column("row").to_pylist() for values, rows in groups} == expected
    assert [repr(values) for values, _ in groups] == list(expected)
    assert all(rows.equals(table.take(rows.column("row").to_numpy())) or "nan" in repr(groups) for _, rows in groups)


def grouped(table: pa.Table, *fields: tuple[str, Transform]) -> dict[tuple[PartitionValue, ...], list[Any]]:
    """Return the values of the first column by partition."""
    given_fields = [PartitionField(path, tuple(path.split(".")), transform) for path, transform in fields]
    return {values: rows.column(0).to_pylist() for values, rows in by_partition(table, given_fields)}


def test_a_source_can_lie_inside_structs_which_can_be_null() -> None:
    city = pa.struct([("city", pa.string())])
    addresses = [{"at": {"city": "Bonn"}}, None, {"at": None}, {"at": {"city": None}}, {"at": {"city": "Bonn"}}]
    table = pa.table({"id": range(5), "address": pa.array(addresses, pa.struct([("at", city)]))})

    assert grouped(table, ("address.at.city", Identity())) == {("Bonn",): [0, 4], (None,): [1, 2, 3]}


def test_a_value_that_a_null_struct_hides_is_null() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([7, 7])], names=["x"], mask=pa.array([True, False]))

    assert grouped(pa.table({"id": [0, 1], "s": hidden}), ("s.x", Identity())) == {(None,): [0], (7,): [1]}


@pytest.mark.parametrize("path", ["gone", "s.gone"])
@pytest.mark.parametrize("transform", [Identity(), Bucket(4), Since1970("day"), CalendarPart("hour", ZONE)])
def test_a_source_that_the_table_lacks_is_null(path: str, transform: Transform) -> None:
    table = pa.table({"id": [2, 1], "s": pa.array([{"x": 1}, None])})

    assert grouped(table, (path, transform)) == {(None,): [2, 1]}
    assert grouped(table, ("id", Identity()), (path, transform)) == {(2, None): [2], (1, None): [1]}


def test_a_table_in_chunks_is_one_table() -> None:
    chunked = pa.concat_tables([pa.table({"id": [1, 2]}), pa.table({"id": [3]}), pa.table({"id": [1]})])

    assert grouped(chunked, ("id", Truncate(2))) == {(0,): [1, 1], (2,): [2, 3]}


def test_no_rows_are_in_no_partition_and_no_fields_make_one() -> None:
    assert grouped(pa.table({"id": pa.array([], pa.int64())}), ("id", Identity())) == {}
    assert grouped(pa.table({"id": [1, 2]})) == {(): [1, 2]}


@pytest.mark.slow
def test_more_partitions_than_16_bits_can_count() -> None:
    ids = [*range(70_000), *range(70_000)]

    groups = grouped(pa.table({"id": ids}), ("id", Identity()))

    assert len(groups) == 70_000
    assert groups[(69_999,)] == [69_999, 69_999]


def test_nan_is_one_partition_and_the_zeros_are_two() -> None:
    table = pa.table({"x": [0.0, float("nan"), -0.0, float("nan"), 0.0]})

    groups = [
        (repr(values), len(rows)) for values, rows in by_partition(table, [PartitionField("x", ("x",), Identity())])
    ]

    assert groups == [("(0.0,)", 2), ("(nan,)", 2), ("(-0.0,)", 1)]


@pytest.mark.parametrize(
    ("moments", "zone", "hours"),
    [
        # Two in the night comes twice: an hour of two hours.
        (["2024-10-27T00:00:00", "2024-10-27T01:59:59"], ZONE, {(2,): 2}),
        # Clocks go back at one minute past midnight, to the hour before: it is 23, 0 and 23 again.
        (
            ["2006-10-29T02:00:00", "2006-10-29T02:30:30", "2006-10-29T02:40:00"],
            "America/St_Johns",
            {(23,): 2, (0,): 1},
        ),
    ],
)
def test_an_hour_is_what_clocks_show_when_they_are_changed(moments: list[str], zone: str, hours: Any) -> None:
    table = pa.table({"at": pa.array(moments).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))})

    groups = grouped(table, ("at", CalendarPart("hour", zone)))

    assert {values: len(rows) for values, rows in groups.items()} == hours


def test_rows_that_lie_together_are_not_copied() -> None:
    table = pa.table({"at": [1, 1, 2, 2, 2], "text": list("abcde")})
    text = address(table)

    for transform in (Identity(), Truncate(10)):
        for _, rows in by_partition(table, [PartitionField("at", ("at",), transform)]):
            assert address(rows) == text


def address(table: pa.Table) -> int:
    """Return where in memory the bytes of the texts are."""
    texts: Any = table.column("text").chunk(0)
    return int(texts.buffers()[2].address)
