"""A file's rows in the table's columns: found by field id, with the same values, or not at all."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from destination_datalake.files.reading import Projection, UnsupportedFile


def field(id_: int, name: str, type_: pa.DataType, *, nullable: bool = True) -> pa.Field[Any]:
    return pa.field(name, type_, nullable, {"PARQUET:field_id": str(id_)})


def rows(values: list[Any], *fields: pa.Field[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(values, pa.schema(fields))


def projected(batch: pa.RecordBatch, *target: pa.Field[Any]) -> list[dict[str, Any]]:
    result = Projection(batch.schema, pa.schema(target))(batch)
    assert result.schema.equals(pa.schema(target), check_metadata=True)
    result.validate(full=True)
    return result.to_pylist()


map_of: Any = pa.map_  # The stubs know types only, not fields, which have names and ids.
INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()
UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


def test_columns_are_found_by_id() -> None:
    """Renamed, moved, dropped, added, and dropped and added again under the old name."""
    batch = rows(
        [{"a": 1, "b": 2, "c": 3, "d": 4}],
        field(1, "a", LONG),
        field(2, "b", LONG),
        field(3, "c", LONG),
        field(4, "d", LONG),
    )

    target = (field(2, "renamed", LONG), field(1, "a", LONG), field(5, "new", TEXT), field(6, "c", LONG))

    assert projected(batch, *target) == [{"renamed": 2, "a": 1, "new": None, "c": None}]


def test_fields_of_structs_are_found_by_id_inside_lists_and_maps_too() -> None:
    old = pa.struct([field(11, "x", INT), field(12, "y", TEXT)])
    new = pa.struct([field(12, "renamed", TEXT), field(13, "y", TEXT), field(11, "x", LONG)])
    batch = rows(
        [
            {"s": {"x": 1, "y": "a"}, "l": [{"x": 2, "y": "b"}, None], "m": [("k", {"x": 3, "y": None})]},
            {"s": None, "l": None, "m": None},
            {"s": {"x": None, "y": None}, "l": [], "m": []},
        ],
        field(1, "s", old),
        field(2, "l", pa.list_(field(21, "item", old))),
        field(3, "m", map_of(field(31, "key", TEXT, nullable=False), field(32, "value", old))),
    )

    projected_rows = projected(
        batch.slice(0, 2),
        field(1, "s", new),
        field(2, "l", pa.list_(field(21, "element", new))),
        field(3, "m", map_of(field(31, "key", TEXT, nullable=False), field(32, "value", new))),
    )

    assert projected_rows == [
        {
            "s": {"renamed": "a", "y": None, "x": 1},
            "l": [{"renamed": "b", "y": None, "x": 2}, None],
            "m": [("k", {"renamed": None, "y": None, "x": 3})],
        },
        {"s": None, "l": None, "m": None},
    ]


def test_slices_of_nested_columns_keep_their_rows() -> None:
    batch = rows([{"l": [1]}, {"l": None}, {"l": [2, 3]}, {"l": []}], field(1, "l", pa.list_(field(2, "item", INT))))

    assert projected(batch.slice(1, 3), field(1, "l", pa.list_(field(2, "element", LONG)))) == [
        {"l": None},
        {"l": [2, 3]},
        {"l": []},
    ]


def test_a_field_that_was_dropped_and_added_again_inside_a_struct_is_null() -> None:
    """The types are equal but for the id."""
    batch = rows([{"s": {"x": 1}}], field(1, "s", pa.struct([field(11, "x", INT)])))

    assert projected(batch, field(1, "s", pa.struct([field(12, "x", INT)]))) == [{"s": {"x": None}}]


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        (INT, -1, LONG, -1),
        (pa.int8(), -1, INT, -1),
        (pa.uint32(), 2**32 - 1, LONG, 2**32 - 1),
        (pa.float32(), 0.10000000149011612, pa.float64(), 0.10000000149011612),
        (pa.decimal128(5, 2), Decimal("1.50"), pa.decimal128(38, 2), Decimal("1.50")),
        (pa.timestamp("ms"), datetime(2024, 5, 1), pa.timestamp("us"), datetime(2024, 5, 1)),
        (pa.timestamp("us"), datetime(2024, 5, 1), UTC_MICROSECONDS, datetime(2024, 5, 1, tzinfo=UTC)),
        (
            pa.timestamp("us", tz="+02:00"),
            datetime(2024, 5, 1, tzinfo=UTC),
            UTC_MICROSECONDS,
            datetime(2024, 5, 1, tzinfo=UTC),
        ),
        (pa.time32("ms"), time(1, 2, 3), pa.time64("us"), time(1, 2, 3)),
        (pa.date32(), date(1, 1, 1), pa.date32(), date(1, 1, 1)),
        (pa.large_string(), "ä", TEXT, "ä"),
        (pa.binary(), "ä".encode(), TEXT, "ä"),
        (pa.dictionary(INT, TEXT), "a", TEXT, "a"),
        (pa.binary(2), b"ab", pa.binary(), b"ab"),
        (pa.large_list(field(2, "item", INT)), [1], pa.list_(field(2, "element", LONG)), [1]),
        (pa.list_(field(2, "item", INT), 2), [1, None], pa.list_(field(2, "element", LONG)), [1, None]),
    ],
)
def test_a_promoted_or_differently_stored_value_is_the_same(old: Any, value: Any, new: Any, expected: Any) -> None:
    assert projected(rows([{"v": value}, {"v": None}], field(1, "v", old)), field(1, "v", new)) == [
        {"v": expected},
        {"v": None},
    ]


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        (TEXT, "1", LONG),
        (LONG, 1, TEXT),
        (LONG, 1, pa.float64()),
        (pa.float64(), 1.5, LONG),
        (pa.float64(), 1.5, pa.float32()),
        (LONG, 2**31, INT),
        (pa.timestamp("ns"), 1, pa.timestamp("us")),
        (pa.decimal128(5, 2), Decimal("1.55"), pa.decimal128(5, 1)),
        (pa.binary(), b"\xff", TEXT),
        (pa.bool_(), True, INT),
        (pa.date32(), date(2024, 1, 1), pa.timestamp("us")),
        (pa.struct([field(2, "x", INT)]), {"x": 1}, INT),
        (INT, 1, pa.struct([field(2, "x", INT)])),
        (pa.list_(field(2, "x", INT)), [1], INT),
    ],
)
def test_a_file_with_values_that_would_change_is_unsuitable(old: Any, value: Any, new: Any) -> None:
    with pytest.raises(UnsupportedFile, match="column v"):
        projected(rows([{"v": value}], field(1, "v", old)), field(1, "v", new))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ([pa.field("v", INT)], "without field IDs"),
        ([field(1, "v", pa.struct([pa.field("x", LONG)]))], "without field IDs"),
        ([field(1, "v", INT), field(1, "w", INT)], "the same field ID"),
        ([field(1, "v", INT), field(2, "v", INT)], "the same name"),
    ],
)
def test_file_with_ambiguous_columns_is_unsupported(source: list[Any], why: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, column.type) for column in source], schema=pa.schema(source))

    with pytest.raises(UnsupportedFile, match=why):
        projected(batch, field(1, "v", pa.struct([field(3, "x", INT)])) if len(source) == 1 else field(1, "v", INT))


@pytest.mark.parametrize(("required", "suitable"), [({1}, True), ({11}, True), ({3}, False), ({9}, True)])
def test_a_file_that_lacks_the_columns_of_its_partition_is_unsuitable(required: set[int], suitable: bool) -> None:
    """Readers take the value from the partition (Iceberg spec: Column Projection). A dropped column needs none."""
    source = pa.schema([field(1, "a", INT), field(2, "s", pa.struct([field(11, "x", INT)]))])
    target = pa.schema([*source, field(3, "b", INT)])

    if suitable:
        Projection(source, target, required)
    else:
        with pytest.raises(UnsupportedFile, match="of its partition"):
            Projection(source, target, required)
