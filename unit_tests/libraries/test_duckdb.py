"""DuckDB: the memory that JSON takes, names in SQL, streams of Arrow, and texts that are not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

pytestmark = pytest.mark.slow


def test_the_json_of_a_large_value_needs_many_times_its_size() -> None:
    connection = duckdb.connect(config={"threads": "1", "memory_limit": "256MB"})
    connection.register("records", pa.table({"c0": ["x" * (22 * 1024 * 1024)]}))

    with pytest.raises(duckdb.OutOfMemoryException):
        connection.sql("SELECT json_object('text', c0)::VARCHAR FROM records").to_arrow_table()

    connection.close()


def test_columns_whose_names_differ_only_in_case_are_renamed() -> None:
    connection = duckdb.connect()
    connection.register("records", pa.table([[1], [2]], names=["a", "A"]))

    assert connection.sql("SELECT to_json(records) FROM records").fetchall() == [('{"a":1,"A_1":2}',)]

    connection.close()


def test_a_column_named_like_the_table_hides_it() -> None:
    connection = duckdb.connect()
    connection.register("records", pa.table([[1]], names=["records"]))

    assert connection.sql("SELECT to_json(records) FROM records").fetchall() == [("1",)]

    connection.close()


def test_a_stream_is_taken_for_one_row() -> None:
    connection = duckdb.connect()
    many = pa.table({"key": range(10_000)})
    connection.register("many", pa.RecordBatchReader.from_batches(many.schema, many.to_batches()))
    connection.execute("CREATE TABLE few AS SELECT 1 AS key")

    plan = connection.sql("EXPLAIN SELECT * FROM many JOIN few ON many.key = few.key").fetchall()[0][1]

    assert "~1 row" in plan

    connection.close()


def test_texts_that_are_not_utf8_cannot_be_read_from_parquet(tmp_path: Path) -> None:
    connection = duckdb.connect()
    texts: Any = pa.array([b"\xff"], pa.binary()).view(pa.string())
    connection.register("records", pa.table({"key": texts}))
    connection.sql("SELECT * FROM records").write_parquet(str(tmp_path / "file"))

    with pytest.raises(duckdb.InvalidInputException, match="not valid UTF8"):
        connection.read_parquet(str(tmp_path / "file")).fetchall()

    connection.close()


def test_the_error_of_a_stream_is_another() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        raise LookupError("gone")
        yield

    connection = duckdb.connect()
    connection.register("records", pa.RecordBatchReader.from_batches(pa.schema([("key", pa.int64())]), batches()))

    with pytest.raises(duckdb.InvalidInputException, match="gone"):
        connection.sql("SELECT * FROM records").fetchall()

    connection.close()
