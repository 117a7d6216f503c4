"""A column type is added in one module of `values/` and in the three maps of `schema/`; nothing else knows of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import time
from itertools import count
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from pyiceberg.types import TimeType

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.json_text import NULL, string_or_none
from destination_datalake.records.decoded import SERIALIZATION_ERROR, Decoded, ValueChange
from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.values.registry import RULES, rules_for
from destination_datalake.records.values.rules import Floats, Value, nulled
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.rejects.writer import RejectFormatter, RowKey
from destination_datalake.schema.arrow import ARROW
from destination_datalake.schema.evolution import evolve
from destination_datalake.schema.glue import GLUE, glue_type
from destination_datalake.schema.iceberg import ICEBERG, iceberg_type
from destination_datalake.schema.types import ColumnType, Field, Int64, Json, List, Struct
from unit_tests.records.values.coercion import coerce_value
from unit_tests.strategies import EXAMPLE_TYPES, column_types, json_values

# --- What schema/types.py and a module of values/ would have for a new type -------------------------------------------


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """A time of day in microseconds, without a zone."""


def coerce_time_of_day(raw: bytes, changes: list[ValueChange]) -> Value:
    """Return the microseconds since midnight of a time that may lack its seconds."""
    if raw == NULL:
        return None
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6}))?)?", string_or_none(raw) or "")
    if match is None:
        return nulled(raw, changes, SERIALIZATION_ERROR)
    hour, minute, second, fraction = match.groups(default="0")
    return (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1_000_000 + int(fraction.ljust(6, "0"))


TIME = cast(ColumnType, TimeOfDay())
STRUCT = Struct((Field("opens", "Opens", TIME), Field("days", "days", List(TIME))))


@pytest.fixture(autouse=True)
def _new_type(monkeypatch: pytest.MonkeyPatch) -> None:
    new = cast(type[ColumnType], TimeOfDay)
    monkeypatch.setitem(RULES, new, lambda _, __: coerce_time_of_day)
    monkeypatch.setitem(ARROW, new, lambda _: pa.time64("us"))
    monkeypatch.setitem(GLUE, new, lambda _: "string")
    monkeypatch.setitem(ICEBERG, new, lambda _, __: TimeType())


# --- What every room then does with it ------------------------------------------------------------------------------


def decoded(records: Sequence[Mapping[str, object]], columns: Sequence[Field]) -> Decoded:
    lines = [
        json.dumps({"type": "RECORD", "record": {"stream": "s", "data": data, "emitted_at": 1_700_000_000_000 + n}})
        for n, data in enumerate(records)
    ]
    [part] = BlockDecoder(columns).decode("".join(f"{line}\n" for line in lines).encode())
    return part


def values(array: Any) -> list[Any]:
    return list(array.to_pylist())


SENT = ["08:30:00", "23:59:59.25", None, "8:30", "noon", 5]
KEPT = [time(8, 30), time(23, 59, 59, 250_000), None, time(8, 30), None, None]


@pytest.mark.parametrize("rows", [len(SENT), 1000], ids=["irregular mostly", "irregular rarely"])
def test_a_new_type_is_read_from_json_lines_to_an_arrow_column(rows: int) -> None:
    sent = [*SENT, *["12:00:00"] * (rows - len(SENT))]

    part = decoded([{"t": text} for text in sent], [Field("t", "t", TIME)])

    assert part.columns[0].type == pa.time64("us")
    assert values(part.columns[0]) == [*KEPT, *[time(12)] * (rows - len(SENT))]
    assert [(row, *changes) for row, changes in part.changed.items()] == [
        (4, ValueChange("t", "NULLED", SERIALIZATION_ERROR)),
        (5, ValueChange("t", "NULLED", SERIALIZATION_ERROR)),
    ]


@pytest.mark.parametrize("beside", [Int64(), Json()], ids=["number", "JSON text"])
@pytest.mark.parametrize("rows", [3, len(SENT)], ids=["canonical", "irregular"])
def test_a_new_type_is_read_inside_objects_and_lists(rows: int, beside: ColumnType) -> None:
    column = Field("shop", "shop", Struct((*STRUCT.fields, Field("beside", "beside", beside))))

    part = decoded([{"shop": {"Opens": value, "days": [value, None]}} for value in SENT[:rows]], [column])

    shops = values(part.columns[0])
    assert [(shop["opens"], shop["days"]) for shop in shops] == [(kept, [kept, None]) for kept in KEPT[:rows]]
    changed = {row: [change.field for change in changes] for row, changes in part.changed.items()}
    assert changed == {row: ["shop.Opens", "shop.days.0"] for row in (4, 5) if row < rows}


def test_rejected_values_of_a_new_type_become_lines_with_the_text_that_was_sent() -> None:
    columns = [Field("shop", "shop", STRUCT)]
    location = RejectLocation("s3://lake/_errors", "0a1b2c", "2026-11-21", "sales", "shops")
    formatter = RejectFormatter(location, StreamId(None, "shops"), columns, "unit", 0)

    part = decoded([{"shop": {"Opens": "noon"}}], columns)
    [line] = formatter.value_lines(part.lines[0], part.changed[0], RowKey("id", 0))

    assert (line.column_name, line.column_value, line.reason) == ("shop.Opens", '"noon"', SERIALIZATION_ERROR)


def test_a_new_type_has_its_names_in_the_catalogs() -> None:
    assert glue_type(STRUCT) == "struct<opens:string,days:array<string>>"
    struct: Any = iceberg_type(STRUCT, count(1).__next__)
    assert (str(struct.fields[0].field_type), str(struct.fields[1].field_type)) == ("time", "list<time>")


def test_values_of_a_new_type_are_redirected_from_a_column_of_another() -> None:
    [column] = evolve({"t": Int64()}, [Field("t", "T", TIME)]).columns

    assert column == Field("t__string", "T", TIME)


# --- Values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column_type", EXAMPLE_TYPES)
def test_null_is_null_in_every_column(column_type: ColumnType) -> None:
    assert coerce_value(b"null", column_type) == (None, ())


@given(json_values, column_types)
def test_any_json_value_fits_any_column_or_its_change_is_noted(value: Any, column_type: ColumnType) -> None:
    raw = json.dumps(value).replace("NaN", "null").replace("Infinity", "1e400")

    kept, changes = coerce_value(raw.encode(), column_type)

    pa.array([kept], rules_for(column_type, Floats.ANY).arrow_type)
    if kept is None:
        assert raw == "null" or changes
    assert all(change.change in ("NULLED", "TRUNCATED") for change in changes)


def test_changes_of_a_column_begin_with_its_source() -> None:
    lines = Struct((Field("lines", "Lines", List(Int64())),))
    changes: list[ValueChange] = []

    coerce = rules_for(lines, Floats.ANY).coercer("Order")

    assert coerce(b'{"Lines": [true]}', changes) == {"lines": [None]}
    assert [change.field for change in changes] == ["Order.Lines.0"]
