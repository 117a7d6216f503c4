"""Data files as another reader finds them: Parquet by its footer, JSON lines by its text."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.aws.upload import Upload
from destination_datalake.files.parquet import ROW_GROUP_BYTES
from destination_datalake.files.plan import FileFormat
from destination_datalake.files.writer import extension, open_file
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def written(cloud: Cloud, format: FileFormat, codec: str, *tables: pa.Table) -> tuple[bytes, bytes]:
    """The object and the footer that writing these tables made."""
    upload = Upload(cloud.access.client("s3"), BUCKET, "file", deferred=False)
    writer = open_file(format, codec, tables[0].schema, upload)
    for table in tables:
        writer.write(table)
    footer = writer.close()
    content = cloud.objects()["file"]
    assert upload.written == len(content)
    return content, footer


def text_lines(content: bytes) -> list[Any]:
    assert content.endswith(b"\n")
    return [json.loads(line, parse_float=Decimal) for line in content.splitlines()]


NESTED = pa.struct([("a", pa.int64()), ("tags", pa.list_(pa.field("element", pa.struct([("x", pa.string())]))))])
ROWS = pa.table(
    {
        "id": pa.array(range(2000), pa.int64()),
        "country": pa.array(["nl", None] * 1000),
        "nested": pa.array([{"a": 1, "tags": [{"x": "y"}, None]}, None] * 1000, NESTED),
    }
)


@pytest.mark.parametrize(
    ("codec", "stored"),
    [("SNAPPY", "SNAPPY"), ("ZSTD", "ZSTD"), ("GZIP", "GZIP"), ("UNCOMPRESSED", "UNCOMPRESSED")],
)
def test_a_parquet_file_holds_the_rows_compressed_as_asked(cloud: Cloud, codec: str, stored: str) -> None:
    content, _ = written(cloud, "parquet", codec, ROWS, ROWS)

    assert pq.read_table(pa.BufferReader(content)) == pa.concat_tables([ROWS, ROWS])
    columns = pq.read_metadata(pa.BufferReader(content)).row_group(0)
    assert {columns.column(index).compression for index in range(columns.num_columns)} == {stored}


def test_a_parquet_file_s_footer_is_handed_back_as_it_is_in_the_file(cloud: Cloud) -> None:
    content, footer = written(cloud, "parquet", "ZSTD", ROWS)

    assert pq.read_metadata(pa.BufferReader(footer)).to_dict() == pq.read_metadata(pa.BufferReader(content)).to_dict()


def test_columns_whose_values_repeat_are_stored_as_a_dictionary_and_others_are_not(cloud: Cloud) -> None:
    _, footer = written(cloud, "parquet", "ZSTD", ROWS)

    row_group = pq.read_metadata(pa.BufferReader(footer)).row_group(0)
    encodings = {
        row_group.column(index).path_in_schema: "RLE_DICTIONARY" in row_group.column(index).encodings
        for index in range(row_group.num_columns)
    }
    assert encodings == {"id": False, "country": True, "nested.a": True, "nested.tags.list.element.x": True}


def test_a_row_group_is_written_whenever_enough_has_gathered(cloud: Cloud) -> None:
    third = pa.table({"text": pa.array(["x" * (ROW_GROUP_BYTES // 3000)] * 1000)})
    small = third.slice(0, 7)

    _, footer = written(cloud, "parquet", "ZSTD", *[third] * 4, small)

    metadata = pq.read_metadata(pa.BufferReader(footer))
    assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [3000, 1007]


def test_a_parquet_file_without_rows_is_a_parquet_file(cloud: Cloud) -> None:
    content, footer = written(cloud, "parquet", "SNAPPY", ROWS.slice(0, 0))

    assert pq.read_table(pa.BufferReader(content)) == ROWS.slice(0, 0)
    assert pq.read_metadata(pa.BufferReader(footer)).num_rows == 0


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


def test_json_lines_say_every_value_exactly(cloud: Cloud) -> None:
    content, footer = written(cloud, "jsonl", "UNCOMPRESSED", VALUES)

    assert text_lines(content) == TEXTS
    assert footer == b""


def test_json_lines_are_one_gzip_stream_when_asked(cloud: Cloud) -> None:
    content, _ = written(cloud, "jsonl", "GZIP", VALUES, VALUES)

    assert text_lines(gzip.decompress(content)) == TEXTS * 2


def test_json_lines_without_rows_are_an_empty_object(cloud: Cloud) -> None:
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
def test_a_file_s_name_tells_how_to_read_it(format: FileFormat, codec: str, ending: str) -> None:
    assert extension(format, codec) == ending


def test_columns_of_values_too_large_to_look_at_are_not_stored_as_a_dictionary(cloud: Cloud) -> None:
    table = pa.table({"id": [1, 1, 1, 1], "huge": ["x" * 6 * 1024 * 1024] * 4})

    content, footer = written(cloud, "parquet", "ZSTD", table)

    assert pq.read_table(pa.BufferReader(content)) == table
    row_group = pq.read_metadata(pa.BufferReader(footer)).row_group(0)
    assert ["RLE_DICTIONARY" in row_group.column(index).encodings for index in range(2)] == [True, False]


def test_huge_values_have_no_statistics_and_their_neighbours_do(cloud: Cloud) -> None:
    rows = pa.table(
        {"id": [1, 2], "text": ["x" * 3 * 1024 * 1024, None], "nested": pa.array([{"a": 1, "tags": []}, None], NESTED)}
    )

    content, footer = written(cloud, "parquet", "SNAPPY", rows)

    row_group = pq.read_metadata(pa.BufferReader(footer)).row_group(0)
    columns = [row_group.column(index) for index in range(row_group.num_columns)]
    assert {column.path_in_schema: column.is_stats_set for column in columns} == {
        "id": True,
        "text": False,
        "nested.a": True,
        "nested.tags.list.element.x": True,
    }
    assert pq.read_table(pa.BufferReader(content)) == rows


PEAK = """
import pyarrow as pa
from destination_datalake.files.writer import open_file

class Nowhere:
    closed = False
    def write(self, piece): return len(piece)
    def flush(self): pass
    def close(self): pass

size = 48 * 1024 * 1024
rows = pa.table({"id": [1], "text": ["x" * size]})
writer = open_file("parquet", "SNAPPY", rows.schema, Nowhere())
writer.write(rows)
writer.close()
print(pa.default_memory_pool().max_memory() / size)
"""


def test_a_huge_value_takes_a_few_times_its_size_in_parquet() -> None:
    """Itself, Arrow's page and its compressed form; with statistics it would be eight times."""
    ended = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) < 6
