"""Compaction: fewer, larger files with the same rows, whatever else happens to the table meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from destination_datalake.files.compact import compact as compact_files
from destination_datalake.files.plan import CompactResult, CompactTask
from destination_datalake.tables.iceberg.maintenance.compaction import CompactionReport, compact
from unit_tests.tables.iceberg.lake import Lake

TARGET = 10_000_000


def on_executors(tasks: Sequence[CompactTask]) -> Sequence[CompactResult]:
    return list(compact_files(tasks))


def compacted(lake: Lake, execute: Any = on_executors, target: int = TARGET) -> CompactionReport:
    return compact(lake.name, lake.access, execute, target)


def files(lake: Lake, branch: str = "main") -> list[str]:
    table = lake.load()
    return [
        task.file.file_path for task in table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).plan_files()
    ]


def test_small_files_become_one_with_the_same_rows(lake: Lake) -> None:
    opened = lake.open()
    for number in range(6):
        lake.commit(opened, number)

    report = compacted(lake)

    assert (report.files_before, report.files_after, report.rows, report.commits) == (6, 1, 6, 1)
    assert len(files(lake)) == 1
    assert lake.ids() == [0, 1, 2, 3, 4, 5]
    snapshot = lake.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-records"] == "6"
    assert snapshot.summary["total-data-files"] == "1"
