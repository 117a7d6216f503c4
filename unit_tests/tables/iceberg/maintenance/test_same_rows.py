"""A law: whatever a table has been through, a compaction changes none of its rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from destination_datalake.schema.types import Field, Int32, Int64, String
from destination_datalake.tables.iceberg.snapshots.files import live_manifests
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Committed
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.compacting import compacted

MERGED_SOON = {"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "true"}
SPECS: list[dict[str, Any]] = [
    {"partition_by": []},
    {"partition_by": [{"source": "region"}]},
    {"partition_by": [{"source": "id", "transform": "bucket[2]"}]},
    {"partition_by": [{"source": "region"}], "sort_by": [{"source": "id", "direction": "descending"}]},
]


class History:
    """Random commits to a table, one after the other."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self._lake = lake
        self._random = random.Random(seed)
        self._columns = [Field("id", "id", Int64()), Field("region", "region", String()), Field("n", "n", Int32())]
        self._spec = SPECS[0]
        self._generation = 1
        self._next = 0
        self._append()
        lake.set_properties(MERGED_SOON)

    def go_on(self) -> None:
        """Make one more commit, of any kind."""
        steps: list[Callable[[], None]] = [self._append] * 6
        steps += [self._overwrite, self._repartition, self._add_column, self._promote, self._delete]
        self._random.choice(steps)()

    def _append(self) -> None:
        self._commit(self._open())

    def _overwrite(self) -> None:
        self._generation += 1
        overwriting = self._open(overwrite=True)
        self._commit(overwriting)
        overwriting.publish(no_rewrite)

    def _repartition(self) -> None:
        self._spec = self._random.choice(SPECS)
        self._append()

    def _add_column(self) -> None:
        name = f"c{len(self._columns)}"
        self._columns.append(Field(name, name, String()))
        self._append()

    def _promote(self) -> None:
        self._columns[2] = Field("n", "n", Int64())
        self._append()

    def _delete(self) -> None:
        """By rewriting files, as another engine does."""
        self._lake.load().delete(f"id = {self._random.randrange(self._next)}")

    def _commit(self, into: IcebergTable) -> None:
        """A file for each row."""
        written = [file for row in self._rows() for file in self._lake.write_partitions(into, row)]
        assert into.commit(written, no_rewrite) == Committed()

    def _open(self, **more: Any) -> IcebergTable:
        return self._lake.open(self._generation, columns=tuple(self._columns), **self._spec, **more)

    def _rows(self) -> list[dict[str, Any]]:
        count = self._random.randint(2, 6)
        self._next += count
        return [
            {"id": id_, "region": self._random.choice(["eu", "us", None]), "n": id_ % 7}
            for id_ in range(self._next - count, self._next)
        ]


def in_duckdb(lake: Lake, folder: Path) -> list[tuple[Any, ...]]:
    """Return the rows of all live files as DuckDB reads them."""
    paths = []
    for number, file in enumerate(lake.files()):
        paths.append(folder / f"{number}.parquet")
        paths[-1].write_bytes(lake.load().io.new_input(file.file_path).open().read())
    cursor = duckdb.connect().execute(
        "SELECT id, region, n FROM read_parquet(?, union_by_name = true)", [list(map(str, paths))]
    )
    return sorted(cursor.fetchall(), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
def test_a_compaction_changes_no_rows(lake: Lake, tmp_path: Path, seed: int) -> None:
    """Of tables with merged manifests, several specs, columns and orders, which others have changed."""
    history = History(lake, seed)
    rewritten = 0
    for _ in range(3):
        for _ in range(4):
            history.go_on()
        before, ids = lake.rows(), in_duckdb(lake, tmp_path)
        sequences = {entry.data_file.file_path: entry.sequence_number for entry in lake.entries()}

        report = compacted(lake)

        rewritten += report.files_before
        assert lake.rows() == before
        assert in_duckdb(lake, tmp_path) == ids
        assert report.failures == []
        after = {entry.data_file.file_path: entry.sequence_number for entry in lake.entries()}
        assert {path: sequences[path] for path in after.keys() & sequences.keys()} == {
            path: after[path] for path in after.keys() & sequences.keys()
        }
        assert max(filter(None, after.values()), default=0) <= max(filter(None, sequences.values()), default=0)
        table = lake.load()
        head = table.metadata.snapshot_by_name("main")
        counted = sum(
            (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
            for manifest in live_manifests(head, table.io)
        )
        assert counted == len(after)
    assert rewritten
