"""Parquet files as another reader finds them: their rows, and what the footer has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.files.parquet import ROW_GROUP_BYTES
from unit_tests.cloud import Cloud
from unit_tests.files.written import NESTED, written

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
def test_file_holds_the_rows_with_the_codec_s_compression(cloud: Cloud, codec: str, stored: str) -> None:
    content, _ = written(cloud, "parquet", codec, ROWS, ROWS)

    assert pq.read_table(pa.BufferReader(content)) == pa.concat_tables([ROWS, ROWS])
    columns = pq.read_metadata(pa.BufferReader(content)).row_group(0)
    assert {columns.column(index).compression for index in range(columns.num_columns)} == {stored}


def test_returned_footer_equals_the_file_s(cloud: Cloud) -> None:
    content, footer = written(cloud, "parquet", "ZSTD", ROWS)

    assert pq.read_metadata(pa.BufferReader(footer)).to_dict() == pq.read_metadata(pa.BufferReader(content)).to_dict()


def test_only_columns_with_repeated_values_are_dictionary_encoded(cloud: Cloud) -> None:
    _, footer = written(cloud, "parquet", "ZSTD", ROWS)

    row_group = pq.read_metadata(pa.BufferReader(footer)).row_group(0)
    encodings = {
        row_group.column(index).path_in_schema: "RLE_DICTIONARY" in row_group.column(index).encodings
        for index in range(row_group.num_columns)
    }
    assert encodings == {"id": False, "country": True, "nested.a": True, "nested.tags.list.element.x": True}


@pytest.mark.parametrize(
    ("values", "is_repetitive"),
    [
        pytest.param(range(5000), False, id="all different"),
        pytest.param([number % 4 for number in range(5000)], True, id="few"),
        pytest.param([number % 1500 for number in range(5000)], True, id="in turn"),
        pytest.param([number % 2500 for number in range(5000)], False, id="too many in turn"),
        pytest.param([number // 4 for number in range(5000)], True, id="in runs"),
        pytest.param([None] * 1000 + [*range(4000)], False, id="different after many nulls"),
        pytest.param([None if number % 4 else number for number in range(5000)], True, id="mostly null"),
        pytest.param([1, 2, 3, 1], False, id="a few rows, different"),
        pytest.param([1, 1, 1, 1], True, id="a few rows, the same"),
    ],
)
def test_a_column_is_dictionary_encoded_if_less_than_half_of_its_first_values_differ(
    cloud: Cloud, values: Iterable[int | None], is_repetitive: bool
) -> None:
    _, footer = written(cloud, "parquet", "ZSTD", pa.table({"id": pa.array(values, pa.int64())}))

    encodings = pq.read_metadata(pa.BufferReader(footer)).row_group(0).column(0).encodings
    assert ("RLE_DICTIONARY" in encodings) == is_repetitive


def test_row_group_is_written_when_the_buffer_is_full(cloud: Cloud) -> None:
    third = pa.table({"text": pa.array(["x" * (ROW_GROUP_BYTES // 3000)] * 1000)})
    small = third.slice(0, 7)

    _, footer = written(cloud, "parquet", "ZSTD", *[third] * 4, small)

    metadata = pq.read_metadata(pa.BufferReader(footer))
    assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [3000, 1007]


def test_file_without_rows_has_schema_and_footer(cloud: Cloud) -> None:
    content, footer = written(cloud, "parquet", "SNAPPY", ROWS.slice(0, 0))

    assert pq.read_table(pa.BufferReader(content)) == ROWS.slice(0, 0)
    assert pq.read_metadata(pa.BufferReader(footer)).num_rows == 0


def test_columns_with_large_samples_are_not_dictionary_encoded(cloud: Cloud) -> None:
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
from destination_datalake.files.unit_files import opener

class Nowhere:
    closed = False
    def write(self, piece): return len(piece)
    def flush(self): pass
    def close(self): pass

size = 48 * 1024 * 1024
rows = pa.table({"id": [1], "text": ["x" * size]})
writer = opener("parquet", "SNAPPY", rows.schema)(Nowhere())
writer.write(rows)
writer.close()
print(pa.default_memory_pool().max_memory() / size)
"""


def test_huge_value_needs_less_than_six_times_its_size() -> None:
    """Itself, Arrow's page and its compressed form; with statistics it would be eight times."""
    ended = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) < 6
