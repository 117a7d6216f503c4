"""Partitioned Iceberg tables: what readers find, and which files they have to read for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from destination_datalake.partitioning.spec import Truncate, parse_transform
from destination_datalake.partitioning.transforms import permits, transformed
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
from destination_datalake.tables.table import Committed, TableConflict
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(4)

ID = Field("id", "id", Int64())

MOMENTS = [datetime.fromisoformat(text) for text in ("1969-12-31T23:59:59.999999", "1970-01-01", "2024-02-29T23:00")]

VALUES: Mapping[ColumnType, Sequence[Any]] = {
    Boolean(): [True, False, True],
    Int32(): [-(2**31) + 2, -1, 2**31 - 1],
    Int64(): [-(2**63) + 2, 34, 2**63 - 1],
    Float32(): [-0.5, float("nan"), 1.5],
    Float64(): [-0.5, float("nan"), 2.0**40],
    Decimal(9, 2): [Number("-1.50"), Number("0.99"), Number("9999999.99")],
    Decimal(38, 9): [Number("-7.000000000"), Number("1.000000001"), Number("0E-9")],
    String(): ["", "a=b/c %", "日本語"],
    Date(): [moment.date() for moment in MOMENTS],
    Timestamp(zoned=False): MOMENTS,
    Timestamp(zoned=True): [moment.replace(tzinfo=UTC) for moment in MOMENTS],
}
"""Values of each type that are in three partitions by most transforms. Rows without values come to them."""


@pytest.mark.share(1)
@pytest.mark.parametrize("transform", ["identity", "bucket[1000]", "truncate[2]", "year", "month", "day", "hour"])
def test_readers_find_the_rows_and_leave_out_the_files_of_other_partitions(lake: Lake, transform: str) -> None:
    permitted = {type_: values for type_, values in VALUES.items() if permits(parse_transform(transform), type_)}
    columns = (ID, *(Field(f"x{number}", f"x{number}", type_) for number, type_ in enumerate(permitted)))
    by = [{"source": column.source, "transform": transform} for column in columns[1:]]
    opened = lake.open(columns=columns, partition_by=by)
    cells = zip(*permitted.values(), strict=True)
    rows = [dict(zip([column.name for column in columns[1:]], row, strict=True)) for row in cells]

    lake.commit_rows(opened, *({"id": number, **row} for number, row in enumerate(rows)), {"id": len(rows)})

    table_rows = lake.load().scan().to_arrow().sort_by("id").to_pylist()
    assert [str({name: row[name] for name in rows[0]}) for row in table_rows] == [
        str(found_as(row)) for row in [*rows, dict.fromkeys(rows[0])]
    ]
    read = {
        column.name: [lake.scanned(equals(column.name, row[column.name])) for row in rows] for column in columns[1:]
    }
    # Only two booleans are different.
    assert read == {column.name: [2, 1, 2] if column.type == Boolean() else [1, 1, 1] for column in columns[1:]}
    assert {lake.scanned(f"{column.name} is null") for column in columns[1:]} == {1}


def equals(column: str, value: Any) -> str:
    match value:
        case bool() | int():
            return f"{column} = {str(value).lower()}"
        case Number():
            return f"{column} = {value:f}"
        case float():
            return f"{column} is nan" if value != value else f"{column} = {value!r}"
        case date():
            return f"{column} = '{value.isoformat()}'"
    return f"{column} = '{value}'"


def found_as(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values as readers return them."""
    utc = ZoneInfo("UTC")
    return {
        name: value.replace(tzinfo=utc) if isinstance(value, datetime) and value.tzinfo else value
        for name, value in row.items()
    }


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


def test_truncated_integers_that_wrap_around_are_found_when_the_column_is_long(lake: Lake) -> None:
    """Below the smallest int there is no int to round down to; a file has ints while the column becomes long."""
    by: dict[str, Any] = {"partition_by": [{"source": "n", "transform": "truncate[10]"}]}
    opened = lake.open(columns=(ID, Field("n", "n", Int64())), **by)
    narrow = (ID, Field("n", "n", Int32()))
    file = lake.write_rows(opened, {"id": 1, "n": -(2**31)}, columns=narrow, partition=[2**31 - 2], statistics=False)

    assert opened.commit([file], no_rewrite) == Committed()

    assert lake.scanned(f"n = {-(2**31)}") == 1
    assert lake.scanned(f"n = {2**31 - 2}") == 0


@pytest.mark.parametrize(("type_", "width"), [(Decimal(9, 2), 100), (Decimal(2, 0), 1000)])
def test_decimals_that_have_no_truncated_value_of_their_type_are_refused(
    lake: Lake, type_: Decimal, width: int
) -> None:
    x = Field("x", "x", type_)
    opened = lake.open(columns=(ID, x), partition_by=[{"source": "x", "transform": f"truncate[{width}]"}])
    lowest = Number(1 - 10**type_.precision).scaleb(-type_.scale)
    truncated = transformed(pa.array([lowest], pa.decimal128(type_.precision, type_.scale)), Truncate(width))
    file = lake.write_rows(opened, {"id": 1, "x": lowest}, partition=truncated.to_pylist())

    with pytest.raises(
        TableConflict, match=r"its partition field x_trunc\w* truncates a negative value .* more digits"
    ):
        opened.commit([file], no_rewrite)

    assert not [key for key in lake.objects() if key.endswith(".parquet")]
