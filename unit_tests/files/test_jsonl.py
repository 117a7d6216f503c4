"""JSON Lines as text: every name, every value, and rows too large for what writes them quickly."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.files.jsonl import JsonLinesEncoder
from destination_datalake.files.plan import FileFormat
from destination_datalake.files.unit_files import extension
from unit_tests.cloud import Cloud
from unit_tests.files.written import NESTED, written

SQL_WORDS = ["rows", "Rows", "ROWS", "row", "data", "json", "records", "select", "from", "null", "c0", "c1", "to_json"]
PUNCTUATION = ['"', "'", "''", "\n", "\\", "", " ", ".", ";", "--", "$1", "?", "{", "\x00", "\u2028", "a.b", "é", "😀"]
NAMES = st.sampled_from(SQL_WORDS + PUNCTUATION) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def objects(table: pa.Table, memory_mb: int = 256) -> list[Any]:
    encoder = JsonLinesEncoder(table.schema, memory_mb)
    written = b"".join(encoder.encode(table))
    return [json.loads(line, parse_float=Decimal) for line in written.split(b"\n")[:-1]]


@given(names=st.lists(NAMES, min_size=1, max_size=6, unique=True))
def test_row_has_every_column_with_any_name(names: list[str]) -> None:
    table = pa.table([pa.array([place, None], pa.int64()) for place in range(len(names))], names=names)

    assert objects(table) == [{name: place for place, name in enumerate(names)}, dict.fromkeys(names)]


@pytest.mark.parametrize("name", ["rows", "ROWS", "records", "c0"])
def test_struct_column_can_have_the_name_of_a_member(name: str) -> None:
    table = pa.table({"id": [1], name: [{"rows": 7, "id": 8}]})

    assert objects(table) == [{"id": 1, name: {"rows": 7, "id": 8}}]


TIMED = pa.struct([("at", pa.timestamp("us", "UTC")), ("list", pa.list_(pa.field("element", pa.decimal128(38, 9))))])


@pytest.mark.share(1)
@pytest.mark.parametrize("letter", ["x", "\x01", '"', "é", "😀"])
def test_row_too_large_for_duckdb_s_memory_limit_is_written_exactly(letter: str) -> None:
    # Given a value that takes more memory than DuckDB has, between small ones
    texts = ["small", letter * (16 * 1024 * 1024 // len(letter.encode())), None]
    table = pa.table(
        {
            "id": pa.array([1, 2, 3]),
            "text": texts,
            "nested": pa.array(
                [None, {"at": datetime(2024, 2, 29, 1, 2, 3, 400001, UTC), "list": [Decimal("1.5")]}, None], TIMED
            ),
            "part": pa.array([0.1, 2.5, None], pa.float32()),
        }
    )

    # When the rows are written with room for the small ones only
    written = objects(table, memory_mb=64)

    # Then each says what it says when there is room for all
    assert written == objects(table, memory_mb=4096)
    assert [row["text"] for row in written] == texts


@pytest.mark.slow
def test_thousand_sparse_columns_are_written_within_the_memory_limit() -> None:
    names = [f"column_{number:0100}" for number in range(1000)]
    columns = [pa.array([1] + [None] * 2099, pa.int32()) for _ in names]

    written = objects(pa.table(columns, names=names))

    assert len(written) == 2100
    assert written[0] == dict.fromkeys(names, 1)
    assert written[2099] == dict.fromkeys(names)


@pytest.mark.parametrize("digits", [1, 16, 38])
def test_decimals_without_digits_before_the_point_are_numbers_of_json(digits: int) -> None:
    values = [Decimal(f"0.{'5' * digits}"), Decimal(f"-0.{'5' * digits}"), Decimal(0), None]
    array = pa.array(values, pa.decimal128(digits, digits))
    table = pa.table({"plain": array, "nested": pa.StructArray.from_arrays([array], names=["in"])})

    assert objects(table) == [{"plain": value, "nested": {"in": value}} for value in values]


def test_encoder_takes_any_number_of_tables() -> None:
    encoder = JsonLinesEncoder(pa.schema([("id", pa.int64())]))
    table = pa.table({"id": [1]})

    written = [b"".join(encoder.encode(table)) for _ in range(100)]

    assert set(written) == {b'{"id":1}\n'}


POINT = pa.struct([("at", pa.struct([("x", pa.int64())]))])
MOMENT = pa.struct([("at", pa.struct([("x", pa.int64()), ("when", pa.timestamp("us", "UTC"))]))])


@pytest.mark.parametrize(
    "type_", [POINT, pa.list_(MOMENT), pa.struct([("points", pa.list_(POINT)), ("point", POINT)])], ids=str
)
def test_slice_is_encoded_like_a_copy(type_: pa.DataType) -> None:
    # Given rows of which a slice is written, as a partition is one of its block
    def value(data_type: pa.DataType, number: int) -> Any:
        if isinstance(data_type, pa.StructType):
            return None if number % 5 == 3 else {field.name: value(field.type, number) for field in data_type}
        if isinstance(data_type, pa.ListType):
            return [value(data_type.value_type, number + i) for i in range(number % 3)]
        return number if data_type == pa.int64() else datetime.fromtimestamp(number, UTC)

    values = [value(type_, number) for number in range(12)]
    table = pa.table({"id": range(12), "nested": pa.array(values, type_)})

    for start, rows in ((1, 11), (3, 4), (11, 1)):
        copied = pa.table({"id": range(start, start + rows), "nested": pa.array(values[start:][:rows], type_)})

        assert objects(table.slice(start, rows)) == objects(copied)


def text_lines(content: bytes) -> list[Any]:
    assert content.endswith(b"\n")
    return [json.loads(line, parse_float=Decimal) for line in content.splitlines()]


VALUES = pa.table(
    {
        "text": pa.array(['"quoted"\n{\\}', "é京😀\u2028", ""]),
        "whole": pa.array([2**63 - 1, None, -(2**63)], pa.int64()),
        "exact": pa.array([Decimal("1234567890123456789.000000000000000001"), None, Decimal(0)], pa.decimal128(38, 18)),
        "flag": pa.array([True, None, False]),
        "day": pa.array([date(2024, 2, 29), None, date(1, 1, 1)]),
        "at": pa.array([datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), None, None], pa.timestamp("us", "UTC")),
        "wall": pa.array([datetime(2024, 2, 29, 1, 2, 3), None, None], pa.timestamp("us")),
        "nested": pa.array([{"a": 1, "tags": [{"x": "y"}, None]}, None, {"a": None, "tags": []}], NESTED),
    }
)
TEXTS: list[dict[str, Any]] = [
    {
        "text": '"quoted"\n{\\}',
        "whole": 2**63 - 1,
        "exact": Decimal("1234567890123456789.000000000000000001"),
        "flag": True,
        "day": "2024-02-29",
        "at": "2024-02-29 01:02:03.456789",
        "wall": "2024-02-29 01:02:03",
        "nested": {"a": 1, "tags": [{"x": "y"}, None]},
    },
    dict.fromkeys(VALUES.column_names) | {"text": "é京😀\u2028"},
    dict.fromkeys(VALUES.column_names)
    | {"text": "", "whole": -(2**63), "exact": Decimal(0), "flag": False, "day": "0001-01-01"}
    | {"nested": {"a": None, "tags": []}},
]


def test_values_are_written_exactly(cloud: Cloud) -> None:
    content, footer = written(cloud, "jsonl", "UNCOMPRESSED", VALUES)

    assert text_lines(content) == TEXTS
    assert footer == b""


def test_gzip_file_is_one_stream(cloud: Cloud) -> None:
    content, _ = written(cloud, "jsonl", "GZIP", VALUES, VALUES)

    assert text_lines(gzip.decompress(content)) == TEXTS * 2


def test_file_without_rows_is_empty(cloud: Cloud) -> None:
    content, _ = written(cloud, "jsonl", "UNCOMPRESSED", VALUES.slice(0, 0))

    assert content == b""


@pytest.mark.parametrize(
    ("format", "codec", "ending"),
    [
        ("parquet", "ZSTD", ".parquet"),
        ("parquet", "GZIP", ".parquet"),
        ("jsonl", "GZIP", ".jsonl.gz"),
        ("jsonl", "UNCOMPRESSED", ".jsonl"),
    ],
)
def test_extension_depends_on_format_and_compression(format: FileFormat, codec: str, ending: str) -> None:
    assert extension(format, codec) == ending
