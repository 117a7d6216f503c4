"""DuckDB: the memory that JSON takes, and names in SQL."""

from __future__ import annotations

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
