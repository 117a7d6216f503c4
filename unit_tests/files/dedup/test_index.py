"""The index of winners: inside of tasks, on a disk that executors share, or in S3."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.errors import ConnectorError
from destination_datalake.files.dedup import index
from destination_datalake.files.dedup.index import index_files, write_index
from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds
from destination_datalake.files.dedup.versions import database, find_winners
from unit_tests.cloud import BUCKET, Cloud, another_client, before

SCRATCH = f"s3://{BUCKET}/_staging/merge"
MANY = 20_000


def written(keys: range, folder: str, access: AwsAccess) -> IndexPart:
    rows = len(keys)
    table = pa.table(
        {
            "key0": pa.array(keys, pa.int64()),
            "order0": pa.nulls(rows, pa.timestamp("us")),
            "raw_id": pa.array([b""] * rows, pa.binary()),
            "is_tombstone": np.zeros(rows, np.bool_),
            "file": np.zeros(rows, np.int32),
            "position": np.arange(rows),
        }
    )
    with database() as (connection, scratch):
        find_winners(connection, [table], table.schema, 0)
        return write_index(connection, [pa.int64()], scratch, folder, access)


def rows_of(part: IndexPart, scratch: Path, access: AwsAccess) -> int:
    [path] = index_files([part], scratch, access)
    return pq.read_metadata(path).num_rows


def test_a_small_index_travels_with_tasks(lake: Cloud, tmp_path: Path) -> None:
    for folder in ((tmp_path / "new").as_uri(), SCRATCH):
        part = written(range(5), folder, lake.access)

        assert (part.rows, part.bounds, part.uri) == (5, (KeyBounds(0, 4, has_null=False, has_nan=False),), "")
        assert rows_of(part, tmp_path, lake.access) == 5
    assert (len(lake.objects()), [*(tmp_path / "new").iterdir()]) == (0, [])


def test_a_large_index_is_a_file_where_executors_share_a_disk(lake: Cloud, tmp_path: Path) -> None:
    folder = tmp_path / "a folder, 100 % new=1"

    parts = [written(range(MANY), folder.as_uri(), lake.access) for _ in range(2)]

    assert [part.size for part in parts] == [path.stat().st_size for path in folder.iterdir()]
    assert len({part.uri for part in parts}) == 2, "another attempt has a file of its own"
    for part in parts:
        assert (part.rows, part.content) == (MANY, b"")
        assert rows_of(part, tmp_path, lake.access) == MANY


def test_an_index_in_s3_is_downloaded_once_as_long_as_its_merge_goes_on(lake: Cloud, tmp_path: Path) -> None:
    access = another_client()
    first, second, of_another_merge = (
        written(range(MANY), folder, lake.access) for folder in (SCRATCH, SCRATCH, f"{SCRATCH}2")
    )
    calls: list[int] = []
    before(access, "s3", "GetObject", calls.append)

    for part, expected in ((first, 1), (second, 2), (first, 2), (second, 2), (of_another_merge, 3), (first, 4)):
        assert rows_of(part, tmp_path, access) == MANY
        assert len(calls) == expected


def test_a_download_that_fails_leaves_no_file(lake: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = written(range(MANY), f"{SCRATCH}3", lake.access)
    monkeypatch.setattr(index, "_RANGE_BYTES", part.size // 2)
    access = another_client()

    def fail(call: int) -> None:
        if call == 2:
            raise LookupError

    before(access, "s3", "GetObject", fail)

    with pytest.raises(LookupError):
        rows_of(part, tmp_path, access)
    assert rows_of(part, tmp_path, lake.access) == MANY


def test_deleted_index_is_an_error(tmp_path: Path, lake: Cloud) -> None:
    part = written(range(MANY), tmp_path.as_uri(), lake.access)
    [path] = tmp_path.iterdir()
    path.unlink()

    with pytest.raises(FileNotFoundError):
        index_files([part], tmp_path, lake.access)


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, lake: Cloud, tmp_path: Path) -> None:
    def full(*_: object, **__: object) -> None:
        raise duckdb.IOException("No space left on device")

    monkeypatch.setattr(duckdb.DuckDBPyRelation, "write_parquet", full)

    with pytest.raises(ConnectorError, match="the disk for their keys is full") as raised:
        written(range(MANY), tmp_path.as_uri(), lake.access)

    assert raised.value.failure.type == "transient_error"
