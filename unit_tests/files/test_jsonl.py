"""JSON lines as text: every name, every value, and rows too large for what writes them quickly."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.files.jsonl import JsonLinesEncoder

SQL_WORDS = ["rows", "Rows", "ROWS", "row", "data", "json", "records", "select", "from", "null", "c0", "c1", "to_json"]
PUNCTUATION = ['"', "'", "''", "\n", "\\", "", " ", ".", ";", "--", "$1", "?", "{", "\x00", "\u2028", "a.b", "é", "😀"]
NAMES = st.sampled_from(SQL_WORDS + PUNCTUATION) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def objects(table: pa.Table, memory_mb: int = 256) -> list[Any]:
    encoder = JsonLinesEncoder(table.schema, memory_mb)
    written = b"".join(encoder.encode(table))
    encoder.close()
    return [json.loads(line, parse_float=Decimal) for line in written.split(b"\n")[:-1]]


@given(names=st.lists(NAMES, min_size=1, max_size=6, unique=True))
def test_a_row_has_every_column_whatever_the_columns_are_called(names: list[str]) -> None:
    table = pa.table([pa.array([place, None], pa.int64()) for place in range(len(names))], names=names)

    assert objects(table) == [{name: place for place, name in enumerate(names)}, dict.fromkeys(names)]


@pytest.mark.parametrize("name", ["rows", "ROWS", "records", "c0"])
def test_a_struct_s_column_may_be_called_like_its_members(name: str) -> None:
    table = pa.table({"id": [1], name: [{"rows": 7, "id": 8}]})

    assert objects(table) == [{"id": 1, name: {"rows": 7, "id": 8}}]


NESTED = pa.struct([("at", pa.timestamp("us", "UTC")), ("list", pa.list_(pa.field("element", pa.decimal128(38, 9))))])


@pytest.mark.parametrize("letter", ["x", "\x01", '"', "é", "😀"])
def test_a_row_too_large_for_the_memory_of_the_quick_way_is_written_all_the_same(letter: str) -> None:
    # Given a value that takes more memory than DuckDB has, between small ones
    texts = ["small", letter * (16 * 1024 * 1024 // len(letter.encode())), None]
    table = pa.table(
        {
            "id": pa.array([1, 2, 3]),
            "text": texts,
            "nested": pa.array(
                [None, {"at": datetime(2024, 2, 29, 1, 2, 3, 400001, UTC), "list": [Decimal("1.5")]}, None], NESTED
            ),
            "part": pa.array([0.1, 2.5, None], pa.float32()),
        }
    )

    # When the rows are written with room for the small ones only
    written = objects(table, memory_mb=64)

    # Then each says what it says when there is room for all
    assert written == objects(table, memory_mb=4096)
    assert [row["text"] for row in written] == texts


def test_many_sparse_columns_are_written_with_as_many_rows_at_a_time_as_there_is_room_for() -> None:
    names = [f"column_{number:0100}" for number in range(1000)]
    columns = [pa.array([1] + [None] * 2099, pa.int32()) for _ in names]

    written = objects(pa.table(columns, names=names))

    assert len(written) == 2100
    assert written[0] == dict.fromkeys(names, 1)
    assert written[2099] == dict.fromkeys(names)


def test_a_file_takes_any_number_of_tables() -> None:
    encoder = JsonLinesEncoder(pa.schema([("id", pa.int64())]))
    table = pa.table({"id": [1]})

    written = [b"".join(encoder.encode(table)) for _ in range(100)]

    encoder.close()
    assert set(written) == {b'{"id":1}\n'}
