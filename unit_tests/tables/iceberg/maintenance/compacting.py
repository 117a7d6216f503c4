"""Compaction as maintenance does it, in the test's own process, and what readers see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from destination_datalake.files.plan import CompactResult, CompactTask
from destination_datalake.files.rewrite import compact
from destination_datalake.tables.iceberg.maintenance.compaction import CompactFiles, CompactionReport, TableCompaction
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Committed
from unit_tests.cloud import ungoverned
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

TARGET = 10_000_000


def filled(lake: Lake, *, count: int = 6, **more: Any) -> IcebergTable:
    """Commit so many files of one row at once; return the sync that did."""
    opened = lake.open(**more)
    commit_files(lake, opened, range(count))
    return opened


def commit_files(lake: Lake, into: IcebergTable, ids: Iterable[int], **more: Any) -> None:
    """Commit a file for each id."""
    assert into.commit([lake.write(into, id_, **more) for id_ in ids], no_rewrite) == Committed()


def on_executors(tasks: Sequence[CompactTask]) -> Sequence[CompactResult]:
    return list(compact(tasks))


def after_writing(act: Callable[[], object]) -> CompactFiles:
    """Compact files, then act once, before what was written is committed."""
    acts = [act]

    def execute(tasks: Sequence[CompactTask]) -> Sequence[CompactResult]:
        results = on_executors(tasks)
        if acts:
            acts.pop()()
        return results

    return execute


def compacted(lake: Lake, execute: CompactFiles = on_executors, target: int = TARGET) -> CompactionReport:
    return TableCompaction(lake.name, ungoverned(lake.access), execute, target).run()


def keys(lake: Lake) -> set[str]:
    """Return the keys of all data files in the bucket, whether or not the table has them."""
    return {key for key in lake.objects() if "/data/" in key}


def live_keys(lake: Lake) -> set[str]:
    return {file.file_path.removeprefix(f"s3://{lake.bucket}/") for file in (*lake.files(), *lake.deletes())}
