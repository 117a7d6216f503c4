"""The index of winners: inside of tasks, on a disk that executors share, or in S3; and the looking up of keys."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.aws.access import AwsAccess
from destination_datalake.errors import ConnectorError
from destination_datalake.files.dedup.index import Index, index_table, open_index, write_index
from destination_datalake.files.dedup.keys import canonical_keys, key_hashes
from destination_datalake.files.dedup.tasks import IndexPart
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.examples import examples
from unit_tests.files.dedup.values import Column, arrays, ordered, rows_of, tables

SCRATCH = f"s3://{BUCKET}/_staging/merge"
MANY = 20_000


def winners_at(positions: list[int], **more: pa.Array[Any]) -> pa.Table:
    rows = len(positions)
    return pa.table(
        {
            "order0": pa.nulls(rows, pa.timestamp("us")),
            "is_tombstone": pa.array([position % 2 == 1 for position in positions], pa.bool_()),
            "file": pa.array([3] * rows, pa.int32()),
            "position": pa.array(positions, pa.int64()),
        }
        | more
    )


def written(numbers: range, folder: str, access: AwsAccess) -> IndexPart:
    keys = pa.array(numbers, pa.int64())
    return write_index(index_table(keys, winners_at([*numbers])), 4, 9, (), folder, access)


def positions_of(index: Index, keys: pa.Array[Any]) -> list[int | None]:
    rows = index.lookup(keys, key_hashes(keys)).tolist()
    return [None if row < 0 else int(index.positions[row]) for row in rows]


@given(tables(max_rows=30), st.randoms(use_true_random=False))
@settings(max_examples=examples(400))
def test_a_key_is_found_where_its_winner_is(columns: list[Column], random: Any) -> None:
    # Given an index of some of the rows, one of each key
    rows = rows_of(columns)
    first = {row: position for position, row in reversed([*enumerate(rows)])}
    indexed = sorted(position for position in first.values() if random.random() < 0.7)
    keys = canonical_keys(arrays(columns))
    index = Index(index_table(keys.take(pa.array(indexed, pa.int64())), winners_at(indexed)))

    # When all are looked up, then those are found that are in it
    assert positions_of(index, keys) == [first[row] if first[row] in indexed else None for row in rows]
    assert [bool(index.is_tombstone[row]) for row in range(len(index))] == [at % 2 == 1 for at in index.positions]


@pytest.mark.parametrize("rows", [4, 3000])
def test_keys_of_one_hash_are_told_apart(rows: int) -> None:
    keys = pa.array([*(str(number).encode() for number in range(rows - 1)), None], pa.binary())
    index = Index(index_table(keys, winners_at([*range(rows)])))
    index._hashes = np.zeros(rows, np.uint64)

    asked = pa.array([b"none", b"2", None, b"0"])
    found = index.lookup(asked, np.zeros(4, np.uint64))

    assert [None if row < 0 else int(index.positions[row]) for row in found] == [None, 2, rows - 1, 0]


@pytest.mark.parametrize("asked", [1, 10, 124, 126, 1000])
def test_few_keys_are_found_as_many_are(asked: int) -> None:
    # Given an index of every other key, and one whose directory is made
    keys = canonical_keys([pa.array([f"key {number}" for number in range(2000)])])
    of_index = np.arange(0, 2000, 2)
    index, other = (Index(index_table(keys.take(of_index), winners_at(of_index.tolist()))) for _ in range(2))
    other.lookup(keys, key_hashes(keys))
    some = keys.slice(7, asked)

    found = positions_of(index, some)

    assert found == positions_of(other, some)
    assert found == [None if number % 2 else number for number in range(7, 7 + asked)]


@given(tables(max_columns=1, max_rows=8))
@settings(max_examples=examples(200))
def test_a_stored_row_is_replaced_unless_it_is_later(columns: list[Column]) -> None:
    # Given rows of some cursors in the index, and stored rows of their keys with other cursors
    [(type_, values)] = columns
    rows = len(values)
    seconds = [second % 3 for second in range(rows)]
    extracted = pa.array(seconds, pa.timestamp("us"))
    winners = winners_at([*range(rows)], order0=pa.array(values, type_), order1=extracted)
    index = Index(index_table(pa.array(range(rows), pa.int64()), winners))
    others, times = values[::-1], seconds[::-1]
    at = index.lookup(keys := pa.array(range(rows), pa.int64()), key_hashes(keys))

    replaced = index.replaces(at, [pa.array(others, type_), pa.array(times, pa.timestamp("us"))])

    ours = [(ordered(cursor), second) for cursor, second in zip(values, seconds, strict=True)]
    theirs = [(ordered(cursor), second) for cursor, second in zip(others, times, strict=True)]
    assert replaced.tolist() == [one >= other for one, other in zip(ours, theirs, strict=True)]


def test_a_small_index_travels_with_tasks(lake: Cloud, tmp_path: Path) -> None:
    for folder in (tmp_path.as_uri(), SCRATCH):
        part = written(range(5), folder, lake.access)

        assert part.uri == ""
        assert positions_of(open_index(part, lake.access), pa.array([4, 7])) == [4, None]
    assert (len(lake.objects()), [*tmp_path.iterdir()]) == (0, [])


def test_a_large_index_is_a_file_where_executors_share_a_disk(lake: Cloud, tmp_path: Path) -> None:
    folder = tmp_path / "a folder, 100 % new"

    parts = [written(range(MANY), folder.as_uri(), lake.access) for _ in range(2)]

    assert [part.size for part in parts] == [path.stat().st_size for path in folder.iterdir()]
    assert len({part.uri for part in parts}) == 2, "another attempt has a file of its own"
    for part in parts:
        assert (part.number, part.parts, part.rows, part.content) == (4, 9, MANY, b"")
        assert positions_of(open_index(part, lake.access), pa.array([MANY - 1, MANY])) == [MANY - 1, None]


def test_an_index_in_s3_is_downloaded_once_as_long_as_its_merge_goes_on(lake: Cloud) -> None:
    access = another_client()
    one, other, of_another_merge = (
        written(range(MANY), folder, lake.access) for folder in (SCRATCH, SCRATCH, f"{SCRATCH}2")
    )
    calls: list[int] = []
    before(access, "s3", "GetObject", calls.append)

    for part, expected in ((one, 1), (other, 2), (one, 2), (other, 2), (of_another_merge, 3), (one, 4)):
        assert positions_of(open_index(part, access), pa.array([7])) == [7]
        assert len(calls) == expected


def test_a_full_disk_is_named(lake: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    part = written(range(MANY), SCRATCH, lake.access)

    def full(**_: object) -> BinaryIO:
        return cast("BinaryIO", Path("/dev/full").open("r+b", buffering=0))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)

    with pytest.raises(ConnectorError, match="index of keys is full") as raised:
        open_index(part, another_client())

    assert raised.value.failure.type == "transient_error"
