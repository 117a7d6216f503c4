"""Keys: whatever a source calls its fields, and whatever stands around them, their values are found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.record import record_coercer
from destination_datalake.records.values.rules import path_step
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import ColumnType, Field, Int32, Int64, Json, List, String, Struct
from unit_tests.strategies import EXAMPLE_TYPES

ESCAPED = ['a"b', "back\\slash", "line\nfeed", "tab\t", "nul\0", "\x1f", "\x7f", "é/€/😀", "\u2028"]
WORDS_OF_OURS = ["rows", "v", "data", "record", "meta", "emitted_at", "changes", "f0", "f1", "Data", "stream", "type"]
ODD = ["", " ", ".", "a.b", "$", "\ud800", "x\udfffy"]
KEYS = [*ESCAPED, *WORDS_OF_OURS, *ODD]


def line(data: Mapping[str, str]) -> bytes:
    """A RECORD line; the values are JSON texts."""
    members = ",".join(f"{json.dumps(key)}:{text}" for key, text in data.items())
    return f'{{"type":"RECORD","record":{{"stream":"s","data":{{{members}}},"emitted_at":1700000000000}}}}'.encode()


Rows = list[tuple[list[Any], list[str | None]]]
"""The values of each row, and the places that were changed in it."""


def decoded(lines: Sequence[bytes], columns: Sequence[Field]) -> Rows:
    """What the decoder makes of a block of these lines, sorted."""
    rows: Rows = []
    for part in BlockDecoder(columns).decode(b"".join(raw_line + b"\n" for raw_line in lines)):
        assert not part.rejected
        arrays: list[Any] = [array.to_pylist() for array in part.columns]
        changes: Any = [[]] * part.rows if part.changes is None else part.changes.to_pylist()
        rows += [
            (list(values), [change["field"] for change in noted])
            for *values, noted in zip(*arrays, changes, strict=True)
        ]
    return sorted(rows, key=repr)


def one_by_one(lines: Sequence[bytes], columns: Sequence[Field]) -> Rows:
    """What the careful rule makes of each line alone, sorted."""
    coerce = record_coercer(columns)
    read = [coerce(raw_line) for raw_line in lines]
    arrays: list[Any] = [
        pa_list([record.values[i] for record in read], column.type) for i, column in enumerate(columns)
    ]
    return sorted(
        [
            ([*values], [change.field for change in record.changes])
            for record, values in zip(read, zip(*arrays, strict=True), strict=True)
        ],
        key=repr,
    )


def pa_list(values: list[Any], type_: ColumnType) -> list[Any]:
    array: Any = pa.array(values, arrow_type(widest(type_)))
    return list(array.to_pylist())


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_any_characters_is_found(key: str) -> None:
    columns = [Field("a", key, Int64()), Field("b", "other", String()), Field("c", "open", Json())]
    lines = [line({key: text, "other": '"x"', "open": "[1]"}) for text in ("1", '"2"')]

    assert decoded(lines, columns) == [([1, "x", "[1]"], []), ([2, "x", "[1]"], [])]


@pytest.mark.parametrize("key", KEYS)
def test_a_change_names_the_keys_that_lead_to_its_value(key: str) -> None:
    column = Field("a", key, Struct((Field("b", key, List(Int32())),)))
    name = path_step(key)

    rows = decoded([line({key: f'{{{json.dumps(key)}:[1,"two"]}}'}), line({})], [column])

    assert rows == [([None], []), ([{"b": [1, None]}], [f"{name}.{name}.1"])]


@given(
    key=st.sampled_from(KEYS) | st.text(max_size=3),
    inner=st.sampled_from(KEYS) | st.text(max_size=3),
    column_type=st.sampled_from(EXAMPLE_TYPES),
    texts=st.lists(st.sampled_from(["null", "1", '"1"', '"x"', "{}", "[]", "true", "1.5", '"2024-02-29"']), max_size=6),
)
def test_blocks_with_any_keys_are_read_as_their_records_are_alone(
    key: str, inner: str, column_type: ColumnType, texts: list[str]
) -> None:
    columns = [Field("a", key, column_type), Field("b", f"{key} ", Struct((Field("c", inner, column_type),)))]
    lines = [line({key: text, f"{key} ": f"{{{json.dumps(inner)}:{text}}}"}) for text in texts]

    assert decoded(lines, columns) == one_by_one(lines, columns)


@pytest.mark.parametrize("column_type", [Int64(), String(), Json()])
def test_a_lone_surrogate_in_an_undeclared_key_changes_nothing(column_type: ColumnType) -> None:
    column = Field("a", "a", column_type)
    beside = line({"a": "1", "\ud800": "2"})
    around = b'{"type":"RECORD","\\ud800":1,"record":{"data":{"a":1},"emitted_at":1,"\\udc00":2}}'
    value = 1 if isinstance(column_type, Int64) else "1"

    assert decoded([line({"a": "1"}), beside, around], [column]) == [([value], [])] * 3


@pytest.mark.parametrize("column_type", [Int64(), String(), Json(), List(Json())])
@pytest.mark.parametrize("marked_line", [0, 1])
def test_a_byte_order_mark_before_a_record_is_skipped(column_type: ColumnType, marked_line: int) -> None:
    column = Field("a", "a", column_type)
    lines = [line({"a": "[1]"}), line({"a": "1"})]
    marked = [b"\xef\xbb\xbf" + raw_line if i == marked_line else raw_line for i, raw_line in enumerate(lines)]

    assert decoded(marked, [column]) == decoded(lines, [column])


@pytest.mark.parametrize("depth", [900, 2_000, 100_000])
@pytest.mark.parametrize("column_type", [Int64(), Json(), String()])
@pytest.mark.parametrize("key", ["a", "undeclared"])
def test_a_record_nested_too_deeply_is_refused_alone(column_type: ColumnType, depth: int, key: str) -> None:
    deep = line({key: "[" * depth + "]" * depth})
    block = b"".join(raw_line + b"\n" for raw_line in [line({"a": "1"}), deep, line({"a": "2"})])

    parts = list(BlockDecoder([Field("a", "a", column_type)]).decode(block))

    refused = [record for part in parts for record in part.rejected]
    assert sum(part.rows for part in parts) + len(refused) == 3
    assert all(bytes(record.line) == deep for record in refused)
    assert all(record.message == "the record is nested too deeply" for record in refused)
