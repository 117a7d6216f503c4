"""Blocks of record lines as columns: whatever the strategies, a record is what the careful rule makes of it alone."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.record import record_coercer
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import (
    ColumnType,
    Field,
    Float32,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from unit_tests.strategies import column_types, json_values, usual_texts

ID = Field("id", "id", Int64())
VALUE = Field("value", "Value", String())


def line(id_: int, value: str | None = None, *, emitted_at: str = "1700000000000", meta: str | None = None) -> bytes:
    """A RECORD line; `value` is JSON text, left out when it is None."""
    data = f'{{"id":{id_}}}' if value is None else f'{{"id":{id_},"Value":{value}}}'
    more = "" if meta is None else f',"meta":{meta}'
    body = f'{{"stream":"orders","data":{data},"emitted_at":{emitted_at}{more}}}'
    return f'{{"type":"RECORD","record":{body}}}'.encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Row:
    """One record as it was decoded."""

    id: int
    value: Any
    emitted_at: int
    changes: list[tuple[str | None, ...]]


def values(array: Any) -> list[Any]:
    """An array's values as Python's."""
    items: list[Any] = array.to_pylist()
    return items


def rows(lines: Iterable[bytes], column_type: ColumnType) -> list[Row]:
    """What the decoder makes of the lines, by their ids; the arrays' types and lengths are checked on the way."""
    decoded_rows: list[Row] = []
    column = Field("value", "Value", column_type)
    for decoded in BlockDecoder([ID, column]).decode(b"".join(raw_line + b"\n" for raw_line in lines)):
        assert decoded.extracted_at.type == pa.timestamp("us", "UTC")
        assert [array.type for array in decoded.columns] == [pa.int64(), arrow_type(widest(column_type))]
        assert all(len(array) == decoded.rows for array in decoded.columns)
        for array in decoded.columns:
            array.validate(full=True)
        changes: Any = [[]] * decoded.rows if decoded.changes is None else decoded.changes.to_pylist()
        ours = sum(change["reason"].startswith("DESTINATION_") for row_changes in changes for change in row_changes)
        assert sum(map(len, decoded.changed.values())) == ours
        assert not decoded.rejected
        decoded_rows += [
            Row(id_, value, at // 1000, [tuple(change.values()) for change in noted])
            for id_, value, at, noted in zip(
                values(decoded.columns[0]),
                values(decoded.columns[1]),
                values(decoded.extracted_at.cast(pa.int64())),
                changes,
                strict=True,
            )
        ]
    return sorted(decoded_rows, key=lambda row: row.id)


def careful_rows(lines: Sequence[bytes], column_type: ColumnType) -> list[Row]:
    """What the careful rule makes of each line alone."""
    coerce = record_coercer([ID, Field("value", "Value", column_type)])
    read = [coerce(raw_line) for raw_line in lines]
    column = pa.array([row.values[1] for row in read], arrow_type(widest(column_type)))
    return [
        Row(index, value, row.emitted_at, [(change.field, change.change, change.reason) for change in row.changes])
        for index, (row, value) in enumerate(zip(read, values(column), strict=True))
    ]


def comparable(value: Any) -> Any:
    """The value with every NaN equal to every other."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: comparable(member) for key, member in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def assert_same(actual: list[Row], expected: list[Row]) -> None:
    assert [(row.id, comparable(row.value), row.emitted_at, row.changes) for row in actual] == [
        (row.id, comparable(row.value), row.emitted_at, row.changes) for row in expected
    ]


# --- The law


@given(data=st.data(), column_type=column_types, irregular=st.booleans())
def test_a_block_is_read_as_its_records_are_alone(
    data: st.DataObject, column_type: ColumnType, irregular: bool
) -> None:
    usual: st.SearchStrategy[str | None] = usual_texts(column_type) | st.just("null") | st.none()
    values = usual | json_values.map(json.dumps) if irregular else usual
    lines = [line(index, value) for index, value in enumerate(data.draw(st.lists(values, min_size=1, max_size=8)))]

    assert_same(rows(lines, column_type), careful_rows(lines, column_type))


@pytest.mark.parametrize("column_type", [Int32(), Float32(), Timestamp(zoned=True), Json(), List(Int64())])
@pytest.mark.parametrize("irregular_rows", [[], [0], [999], [500], [1, 2, 3], range(0, 1000, 7), range(1000)])
def test_an_irregular_value_changes_no_other_record(column_type: ColumnType, irregular_rows: Sequence[int]) -> None:
    usual = {Timestamp: '"2024-02-29T12:00:00Z"', List: "[1,2]"}.get(type(column_type), "1")
    lines = [line(index, '{"x":"NaN"}' if index in irregular_rows else usual) for index in range(1000)]

    assert_same(rows(lines, column_type), careful_rows(lines, column_type))


# --- Facts


@pytest.mark.parametrize(
    "text",
    [
        '{"b": 1.0, "a":[1 , 2]}',
        "1.50",
        "123456789012345678901234567890",
        "1E400",
        '"text with \\u00e9 and \\/"',
        "[]",
        "true",
        '{"same":1,"same":2}',
    ],
)
def test_open_json_is_kept_byte_for_byte(text: str) -> None:
    assert [row.value for row in rows([line(0, text), line(1, "null"), line(2)], Json())] == [text, None, None]


def test_open_json_inside_a_closed_structure_is_kept_byte_for_byte() -> None:
    inner = Struct((Field("kind", "Kind", Int64()), Field("open", "Open", Json())))

    [row] = rows([line(0, '{"Open": { "a":1.0 }, "Kind": 3, "more": true}')], inner)

    assert row.value == {"kind": 3, "open": '{ "a":1.0 }'}


def test_a_change_beside_open_json_is_noted_on_its_row() -> None:
    inner = Struct((Field("kind", "Kind", Int64()), Field("open", "Open", Json())))

    first, second = rows([line(0, '{"Kind":1}'), line(1, '{"Kind":"none"}')], inner)

    assert (first.changes, second.value) == ([], {"kind": None, "open": None})
    assert second.changes == [("Value.Kind", "NULLED", "DESTINATION_SERIALIZATION_ERROR")]


def test_members_are_read_by_source_and_written_by_name() -> None:
    nested = Struct((Field("zip_code", "zipCode", String()), Field("tags", "Tags", List(Struct((ID,))))))

    [row] = rows([line(0, '{"Tags":[{"id":1},null],"zipCode":"0815","zip_code":"no"}')], nested)

    assert row.value == {"zip_code": "0815", "tags": [{"id": 1}, None]}


def test_undeclared_fields_are_left_out() -> None:
    [row] = rows([b'{"type":"RECORD","record":{"stream":"s","emitted_at":1,"data":{"x":[1],"id":5,"y":{}}}}'], String())

    assert (row.id, row.value, row.changes) == (5, None, [])


@pytest.mark.parametrize(
    ("sent", "milliseconds"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("1700000000000.0", 1_700_000_000_000),
        ("1.7e12", 1_700_000_000_000),
        ("1700000000", 1_700_000_000_000),
        ("1700000000.0", 1_700_000_000_000),
        ("0", 0),
    ],
)
def test_emitted_at_is_read_as_milliseconds_or_as_seconds_if_too_small(sent: str, milliseconds: int) -> None:
    assert [row.emitted_at for row in rows([line(0, '"a"', emitted_at=sent)], String())] == [milliseconds]


def test_changes_reported_by_the_source_come_first() -> None:
    source = '{"changes":[{"field":"other","change":"TRUNCATED","reason":"SOURCE_FIELD_SIZE_LIMITATION"}]}'
    source_change = ("other", "TRUNCATED", "SOURCE_FIELD_SIZE_LIMITATION")
    own_change = ("Value", "NULLED", "DESTINATION_SERIALIZATION_ERROR")

    assert [row.changes for row in rows([line(0, "1", meta=source), line(1, "2")], Int64())] == [[source_change], []]
    assert [row.changes for row in rows([line(0, '"x"', meta=source), line(1, "2")], Int64())] == [
        [source_change, own_change],
        [],
    ]
    assert [row.changes for row in rows([line(0, "1", meta='{"changes":[]}')], Int64())] == [[]]
    assert [row.changes for row in rows([line(0, "1", meta="{}"), line(1, "1", meta="null")], Int64())] == [[], []]


def test_a_line_of_megabytes_among_short_ones_is_read() -> None:
    long = "x" * 3_000_000

    assert [row.value for row in rows([line(0, '"a"'), line(1, f'"{long}"'), line(2, '"b"')], String())] == [
        "a",
        long,
        "b",
    ]


def test_a_stream_without_columns_has_rows() -> None:
    [decoded] = BlockDecoder([]).decode(line(0) + b"\n" + line(1) + b"\n")

    assert (decoded.rows, decoded.columns) == (2, [])


@pytest.mark.parametrize("column_type", [String(), Json(), Struct((Field("a", "a", String()),)), List(String())])
@pytest.mark.parametrize("value", [b'"\xff"', b'{"a":"\xff"}', b'["\xff"]'])
def test_bytes_that_are_not_utf8_are_nulled(column_type: ColumnType, value: bytes) -> None:
    good = line(0)
    broken = line(1, '"?"').replace(b'"?"', value)

    first, second = rows([good, broken], column_type)

    assert first.changes == []
    assert {change for _, change, _ in second.changes} == {"NULLED"}


@pytest.mark.parametrize(
    ("line_", "reason"),
    [
        (b"secret", "DESTINATION_RECORD_UNREADABLE"),
        (b'{"record":{"data":"secret","emitted_at":1}}', "DESTINATION_RECORD_UNREADABLE"),
        (b'{"record":{"data":{"id":1},"emitted_at":"secret"}}', "DESTINATION_RECORD_UNREADABLE"),
        (line(1, emitted_at="1e30"), "DESTINATION_RECORD_TIME_OUT_OF_RANGE"),
    ],
)
def test_line_without_a_record_is_rejected_and_not_quoted(line_: bytes, reason: str) -> None:
    parts = list(BlockDecoder([ID, VALUE]).decode(b"\n".join([line(0), line_, line(2), b""])))

    assert sorted(id_ for part in parts for id_ in values(part.columns[0])) == [0, 2]
    [refused] = [refused for part in parts for refused in part.rejected]
    assert (bytes(refused.line), refused.reason) == (line_, reason)
    assert "secret" not in refused.message


def test_empty_lines_are_no_rows_but_have_numbers() -> None:
    assert [*BlockDecoder([ID]).decode(b"\n\n")] == []

    [decoded] = BlockDecoder([ID]).decode(b"\n" + line(0) + b"\n\n" + line(1) + b"\n")

    assert (values(decoded.columns[0]), decoded.lines.numbers.tolist()) == ([0, 1], [1, 3])


def test_a_block_s_memory_is_free_as_soon_as_nothing_refers_to_it() -> None:
    """Without the garbage collector, which runs rarely where few objects are made."""
    block = b"".join(line(number, json.dumps("x" * 1000)) + b"\n" for number in range(1000))
    decoder, process = BlockDecoder([ID, VALUE]), psutil.Process()
    gc.disable()
    try:
        for _ in range(10):
            assert sum(part.rows for part in decoder.decode(block)) == 1000
        before = process.memory_info().rss
        for _ in range(100):
            assert sum(part.rows for part in decoder.decode(block)) == 1000
        assert process.memory_info().rss - before < 20 * len(block)
    finally:
        gc.enable()
