"""The latest row of each key, and the rows that it replaces, as a dict has them: equal keys and the order of values."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.errors import ConnectorError
from destination_datalake.files.dedup import versions
from destination_datalake.files.dedup.versions import comparable, database, find_replaced, find_winners
from unit_tests.examples import examples
from unit_tests.files.dedup.values import Column, arrays, rows_of, tables

MANY = 200_000


def table_of(key: Sequence[pa.Array[Any]], order: Sequence[pa.Array[Any]], file: int = 0) -> pa.Table:
    """Rows of one file, whose raw ids are all the same."""
    rows = len(key[0])
    columns: dict[str, Any] = {f"key{number}": comparable(column) for number, column in enumerate(key)}
    columns |= {f"order{number}": comparable(column) for number, column in enumerate(order)}
    columns |= {"raw_id": pa.array([b""] * rows, pa.binary()), "is_tombstone": pa.array([False] * rows, pa.bool_())}
    return pa.table({**columns, "file": np.full(rows, file, np.int32), "position": np.arange(rows)})


def latest(*tables: pa.Table, content: int = 0) -> list[tuple[int, int]]:
    """The file and the position of the latest row of each key."""
    with database() as (connection, _):
        find_winners(connection, tables, tables[0].schema, content)
        return sorted(connection.sql("SELECT file, position FROM winners").fetchall())


@given(tables(max_columns=4, max_rows=20), st.integers(1, 3))
@settings(max_examples=examples(300), deadline=None)
def test_latest_row_of_a_key_agrees_with_a_dict(columns: list[Column], parts: int) -> None:
    # Given a key of some columns, and an order by the others
    key, order = columns[:parts], columns[parts:]
    keys = rows_of(key)
    ages = rows_of(order) if order else [()] * len(keys)

    won = latest(table_of(arrays(key), arrays(order)))

    expected: dict[Any, int] = {}
    for row, (of_key, age) in enumerate(zip(keys, ages, strict=True)):
        if of_key not in expected or age >= ages[expected[of_key]]:
            expected[of_key] = row
    assert [position for _, position in won] == sorted(expected.values())


@given(tables(max_columns=4, max_rows=12), st.integers(1, 3), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_a_row_is_replaced_by_the_winner_of_its_key_unless_it_is_later(
    columns: list[Column], parts: int, more: bool
) -> None:
    # Given rows of which the first half are winners, and the others, which may be more of them, are stored
    key, order = columns[:parts], columns[parts:]
    middle = len(columns[0][1]) // 2 + 1
    stored = table_of([array.slice(middle) for array in arrays(key)], [array.slice(middle) for array in arrays(order)])
    keys, ages = rows_of(key), rows_of(order) if order else [()] * len(columns[0][1])
    won = {keys[row]: row for row in sorted(range(min(middle, len(keys))), key=lambda row: (ages[row], row))}

    with database() as (connection, folder):
        first = slice(0, middle)
        pending = table_of([array[first] for array in arrays(key)], [array[first] for array in arrays(order)])
        find_winners(connection, [pending], pending.schema, 0)
        connection.table("winners").write_parquet(str(folder / "index"))
        connection.execute("DROP TABLE winners")
        schema = stored.drop_columns(["raw_id", "is_tombstone"])
        count = stored.num_rows + 100 * more
        batches = [*find_replaced(connection, [schema], schema.schema, count, [folder / "index"])]

    hits = {
        row["position"] + middle: (row["by_position"], row["wins"]) for batch in batches for row in batch.to_pylist()
    }
    assert hits == {
        row: (won[keys[row]], ages[won[keys[row]]] >= ages[row]) for row in range(middle, len(keys)) if keys[row] in won
    }


def test_of_equal_rows_the_one_that_arrived_last_is_the_latest() -> None:
    content, first, second = (table_of([pa.array([1])], [pa.array([0])], number) for number in range(3))

    assert latest(content, second, first, content=1) == [(2, 0)]


def test_pending_row_is_later_than_a_row_of_the_content() -> None:
    content, pending = (table_of([pa.array([1])], [pa.array([0])], number) for number in range(2))
    position = content.schema.get_field_index("raw_id")
    content = content.set_column(position, "raw_id", pa.array([b"zz"]))

    assert latest(content, pending, content=1) == [(1, 0)]
    assert latest(content, pending) == [(0, 0)]


def test_all_forms_of_nan_are_one_key() -> None:
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0x7FF0000000000001]
    nans = [struct.unpack("<d", struct.pack("<Q", pattern))[0] for pattern in bits]

    assert latest(table_of([pa.array(nans)], [pa.array(nans[::-1])])) == [(0, 3)]


def test_texts_that_are_not_utf8_are_compared_by_their_bytes() -> None:
    texts: Any = pa.array([b"\xff", b"\xff\x00", b"\xff", b""], pa.binary()).view(pa.string())

    assert latest(table_of([texts], [])) == [(0, 1), (0, 2), (0, 3)]
    assert latest(table_of([pa.array([1] * 4)], [texts])) == [(0, 1)]


@pytest.mark.parametrize("limit", [32, 192])
def test_more_rows_than_memory_holds_wait_on_the_disk(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MEMORY_LIMIT_MB", limit)
    spilled: list[Path] = []
    texts = pa.array([f"{number % (MANY // 2):0100}" for number in range(MANY)])

    def blocks() -> Iterator[pa.Table]:
        for start in range(0, MANY, 10_000):
            block = texts.slice(start, 10_000)
            rows = table_of([block], [block], file=start)
            yield rows
            spilled.extend(disk.glob("*.tmp"))

    with database() as (connection, folder):
        disk = Path(connection.sql("SELECT current_setting('temp_directory')").fetchall()[0][0])
        [first] = [next(blocks())]
        find_winners(connection, blocks(), first.schema, 0)
        rows = connection.sql("SELECT count(*), min(file) FROM winners").fetchall()

    assert rows == [(MANY // 2, MANY // 2)]
    assert bool(spilled) == (limit == 32)
    assert not folder.exists()
    assert not [*disk.glob("*.tmp")]


def test_connection_does_not_see_the_rows_of_an_earlier_one() -> None:
    assert latest(table_of([pa.array([1, 2])], [])) == [(0, 0), (0, 1)]

    with database() as (connection, _):
        assert connection.sql("SHOW ALL TABLES").fetchall() == []
        assert connection.sql("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()[0][0] < 2**20


def test_database_that_has_failed_is_replaced() -> None:
    with pytest.raises(duckdb.FatalException), database():
        raise duckdb.FatalException("invalidated")

    assert latest(table_of([pa.array([1])], [])) == [(0, 0)]


def test_what_memory_and_disk_cannot_hold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MEMORY_LIMIT_MB", 1)
    texts = pa.array([f"{number:01000}" for number in range(20_000)])

    with pytest.raises(ConnectorError, match="Set TMPDIR") as raised:
        latest(table_of([texts], []))

    assert raised.value.failure.type == "transient_error"


def test_what_reading_rows_raises_is_raised() -> None:
    table = table_of([pa.array([1])], [])

    def rows() -> Iterator[pa.Table]:
        yield table
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"), database() as (connection, _):
        find_winners(connection, rows(), table.schema, 0)
