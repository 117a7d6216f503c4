"""RECORD lines: their envelope, and the careful rule for one of them."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from destination_datalake.records.decoded import ValueChange
from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.record import (
    CoercedRecord,
    RejectedRecord,
    emitted_at,
    record_coercer,
    source_changes,
)
from destination_datalake.schema.types import (
    ColumnType,
    Field,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
)
from unit_tests.strategies import column_types, json_values


def coerce_record(line: bytes, columns: Sequence[Field]) -> CoercedRecord:
    return record_coercer(columns)(line)


COLUMNS = [
    Field("id", "id", Int64()),
    Field("full_name", "fullName", String()),
    Field("order", "order", Struct((Field("lines", "Lines", List(Int32())),))),
]


def a_line(data: str = "{}", emitted_at: str = "1602637589100", suffix: str = "") -> bytes:
    record = f'"stream":"s","emitted_at":{emitted_at},"data":{data}{suffix}'
    return f'{{"type":"RECORD","record":{{{record}}}}}'.encode()


def test_a_record_has_one_value_per_column_in_their_order() -> None:
    line = a_line('{"fullName": "Ada", "order": {"Lines": [1, 2]}, "undeclared": 1, "id": "7"}')
    assert coerce_record(line, COLUMNS) == CoercedRecord(1602637589100, [7, "Ada", {"lines": [1, 2]}], [], 0)


def test_an_empty_record_is_a_row_of_nulls() -> None:
    assert coerce_record(a_line(), COLUMNS).values == [None, None, None]
    assert coerce_record(a_line('{"id": 1}'), []).values == []


def test_source_changes_come_first_and_ours_name_keys_of_the_record() -> None:
    line = a_line(
        '{"id": "two", "order": {"Lines": [1, "x"]}, "fullName": "\\ud800"}',
        suffix=',"meta":{"changes":[{"field":"fullName","change":"TRUNCATED","reason":"SOURCE_FIELD_SIZE_LIMITATION"}]}',
    )
    record = coerce_record(line, COLUMNS)
    assert record.reported == 1
    assert record.changes == [
        ValueChange("fullName", "TRUNCATED", "SOURCE_FIELD_SIZE_LIMITATION"),
        ValueChange("id", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
        ValueChange("fullName", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
        ValueChange("order.Lines.1", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "the line is not a record"),
        (b"hello secret", "the line is not a record"),
        (b'{"type":"RECORD"', "the line is not a record"),
        (b'{"type":"STATE","state":{}}', "the line is not a record"),
        (b'{"type":"RECORD","record":null}', "the line is not a record"),
        (b'["secret"]', "the line is not a record"),
        (b'{"record":{"emitted_at":1}}', "the record contains no data object"),
        (a_line("null"), "the record contains no data object"),
        (a_line('"secret"'), "the record contains no data object"),
        (a_line("[1]"), "the record contains no data object"),
        (a_line('{"secret": 01}'), "the line is not a record"),
        (a_line('{"secret": 1}') + b" x", "the line is not a record"),
        (a_line('{"secret": "\t"}'), "the line is not a record"),
        (a_line('{"s": "\\ud800",}'), "the line is not a record"),
        (a_line('{1: "\\ud800"}'), "the line is not a record"),
        (a_line('{"s" "\\ud800"}'), "the line is not a record"),
        (a_line('{"secret": ' + "[" * 100_000 + "]" * 100_000 + "}"), "the record is nested too deeply"),
        (b'{"record":{"data":{}}}', "emitted_at is missing or not a number"),
        (a_line(emitted_at="null"), "emitted_at is missing or not a number"),
        (a_line(emitted_at='"secret"'), "emitted_at is missing or not a number"),
        (a_line(emitted_at="true"), "emitted_at is missing or not a number"),
        (a_line(emitted_at="253402300800000"), "the record's emitted_at is out of range"),
        (a_line(emitted_at="-62135596800001"), "the record's emitted_at is out of range"),
        (a_line(emitted_at="1e99999999999"), "the record's emitted_at is out of range"),
    ],
)
def test_a_line_without_a_usable_record_is_refused_and_not_quoted(line: bytes, reason: str) -> None:
    with pytest.raises(RejectedRecord) as refused:
        coerce_record(line, COLUMNS)
    assert str(refused.value) == reason


def test_a_record_that_msgspec_refuses_is_read() -> None:
    line = a_line('{ "id" : 12345678901234567890 , "fullName" : "x" , "\\udc00" : [ ] , "empty" : {} }')
    assert coerce_record(line, COLUMNS) == CoercedRecord(
        1602637589100, [None, "x", None], [ValueChange("id", "NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")], 0
    )


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        ('{"id":1,"fullName":"\\uDC00"}', [1, None, None]),
        ('{"id":1,"fullName":"\\ud83d\\ude00","x":"\\ud800"}', [1, "😀", None]),
        ('{"id":1,"fullName":"\\ud55c \\\\ud800","x":"\\ud800"}', [1, "한 \\ud800", None]),
        ('{"id":1,"fullName":"\\ue000","x":"\\ud800"}', [1, "\ue000", None]),
        ('{"id":1,"fullName":"\ue000","x":"\\ud800"}', [1, "\ue000", None]),
        ('{"id":1,"\ue000":2,"\\ud83d\\ude00":3,"fullName":"\\udfff"}', [1, None, None]),
    ],
)
def test_lone_surrogates_null_only_their_value(data: str, kept: list[Any]) -> None:
    record = coerce_record(a_line(data), COLUMNS)

    assert record.values == kept
    assert [change.original for change in record.changes] == [
        original for original in (b'"\\uDC00"', b'"\\udfff"') if original in data.encode()
    ]


def test_a_column_whose_key_is_an_emoji_is_found_beside_a_lone_surrogate() -> None:
    line = a_line('{"\\ud83d\\ude00": "a", "x": "\\ud800"}')
    assert coerce_record(line, [Field("smile", "😀", String())]).values == ["a"]


def test_bytes_that_are_not_utf8_null_only_their_value() -> None:
    line = a_line('{"id": 1, "fullName": "?", "!": 2}').replace(b"?", b"\xff").replace(b"!", b"\xfe")
    assert coerce_record(line, COLUMNS).values == [1, None, None]


def test_a_record_with_numbers_that_are_not_json_is_read() -> None:
    columns = [
        Field("x", "x", Float64()),
        Field("o", "o", Struct((Field("y", "y", Float64()), Field("j", "j", Json())))),
    ]
    record = coerce_record(a_line('{"x": Infinity, "o": {"y": -Infinity, "j": [NaN]}}'), columns)
    assert record.values == [math.inf, {"y": -math.inf, "j": None}]
    assert record.changes == [ValueChange("o.j", "NULLED", "DESTINATION_SERIALIZATION_ERROR")]


def test_one_coercer_serves_many_lines() -> None:
    coerce = record_coercer(COLUMNS)
    assert [coerce(a_line(f'{{"id": {n}}}')).values[0] for n in range(3)] == [0, 1, 2]


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5), st.lists(column_types, max_size=5))
def test_any_record_becomes_a_row(data: dict[str, Any], types: list[ColumnType]) -> None:
    keys = [*data, *(f"absent {i}" for i in range(5))]
    columns = [Field(f"c{i}", keys[i], type_) for i, type_ in enumerate(types)]
    raw = json.dumps(data).replace("NaN", "null").replace("Infinity", "1e400")
    record = coerce_record(a_line(raw), columns)
    assert len(record.values) == len(columns)


@given(st.binary(max_size=40) | st.text('[]{}",:0123456789.eE-\\u \nd8truefalsn', max_size=40).map(str.encode))
def test_any_bytes_are_a_record_or_refused(line: bytes) -> None:
    with pytest.raises(RejectedRecord):
        coerce_record(line, COLUMNS)
    with pytest.raises(RejectedRecord):
        coerce_record(b'{"record":' + line, COLUMNS)


# --- The envelope


@pytest.mark.parametrize(
    ("raw", "milliseconds"),
    [
        ("1602637589100", 1602637589100),
        ("1602637589100.9", 1602637589100),
        ("1.6026375891e12", 1602637589100),
        ("1602637589", 1602637589000),
        ("1602637589.1239", 1602637589123),
        ("99999999999", 99999999999000),
        ("100000000000", 100000000000),
        ("0", 0),
        ("-1", -1000),
        ("-62135596800000", -62135596800000),
    ],
)
def test_emitted_at_is_in_milliseconds_or_in_seconds_if_too_small(raw: str, milliseconds: int) -> None:
    assert emitted_at(raw.encode()) == milliseconds


@given(st.lists(st.none() | st.integers(-(2**41), 2**48)))
@example([-62_135_596_801])  # in seconds, the last one before the year 1
def test_times_of_a_block_equal_those_of_its_records(numbers: list[int | None]) -> None:
    lines = [a_line(emitted_at="null" if number is None else str(number)) for number in numbers]

    parts = [*BlockDecoder([]).decode(b"".join(line + b"\n" for line in lines))]

    times: list[int] = []
    for part in parts:
        assert part.extracted_at.type == pa.timestamp("us", "UTC")
        microseconds: Any = part.extracted_at.cast(pa.int64())
        times += microseconds.to_pylist()
    expected = []
    for number in numbers:
        with contextlib.suppress(RejectedRecord):
            expected.append(emitted_at(str(number).encode()) * 1000)
    assert sorted(times) == sorted(expected)
    assert sum(len(part.rejected) for part in parts) == len(numbers) - len(expected)


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ("null", []),
        ("{}", []),
        ('{"changes":null}', []),
        ('{"changes":[]}', []),
        ('{"changes":[null]}', []),
        ('{"changes":"none"}', []),
        ("[]", []),
        ('{"changes":[{"field":"a","change":"NULLED","reason":null,"more":1}]}', [ValueChange("a", "NULLED", None)]),
        ('{"changes":[{"field":"\\ud800","change":"X","reason":"Y"}]}', [ValueChange(None, "X", "Y")]),
    ],
)
def test_irregular_source_changes_are_kept_as_far_as_they_fit(meta: str, expected: list[ValueChange]) -> None:
    assert source_changes(meta.encode()) == expected


def test_source_changes_with_too_many_wrong_entries_are_left_out() -> None:
    assert source_changes(f'{{"changes":[{",".join(["1"] * 20_000)}]}}'.encode()) == []
