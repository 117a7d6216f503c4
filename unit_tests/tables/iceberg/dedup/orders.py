"""Syncs of one stream that is deduplicated, and what readers find in its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from pyiceberg.table.snapshots import ancestors_of

from destination_datalake.schema.types import Field, Int64, String, Timestamp
from destination_datalake.tables.context import Jobs
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Committed
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.jobs import InProcess, Watch

COLUMNS = (
    Field("id", "id", Int64()),
    Field("name", "name", String()),
    Field("version", "version", Int64()),
    Field("_ab_cdc_deleted_at", "_ab_cdc_deleted_at", Timestamp(zoned=True)),
)
DAY = datetime(2026, 1, 1, tzinfo=UTC)

Row = Mapping[str, Any]


class Orders:
    """The stream, with the primary key `id` and the cursor `version` unless a sync says otherwise."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._arrivals = count()

    def watch(self, watch: Watch) -> None:
        """Have the jobs watched of all syncs that begin from now on."""
        self.lake.jobs = Jobs(InProcess(watch), self.lake.jobs.scratch)

    def open(self, generation: int = 1, **more: Any) -> IcebergTable:
        """Begin a sync."""
        return self.lake.open(generation, **{"columns": COLUMNS, "key": ("id",), "cursor": "version", **more})

    def land(self, into: IcebergTable, *rows: Row) -> None:
        """Commit a batch: a file for each partition."""
        sent = [self.row(**row) for row in rows]
        assert into.commit(self.lake.write_partitions(into, *sent), no_rewrite) == Committed()

    def sync(self, *batches: Sequence[Row], **more: Any) -> None:
        """Do one sync from its beginning to its end."""
        opened = self.open(**more)
        for rows in batches:
            self.land(opened, *rows)
        opened.publish(no_rewrite)

    def row(self, *, at: int = 0, deleted: bool = False, **values: Any) -> dict[str, Any]:
        """Return a record as it is written; `at` is how many seconds after the first it was extracted."""
        return {
            "_airbyte_raw_id": f"{next(self._arrivals):08d}",
            "_airbyte_extracted_at": DAY + timedelta(seconds=at),
            "_ab_cdc_deleted_at": DAY if deleted else None,
            **values,
        }

    def names(self, branch: str = "main") -> dict[Any, str | None]:
        """Return the names by id that a reader finds. Fails if an id is there twice."""
        table = self.lake.load()
        if branch not in table.metadata.refs:
            return {}
        rows = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).to_arrow().to_pylist()
        names = {row["id"]: row["name"] for row in rows}
        assert len(names) == len(rows), f"ids are there twice: {sorted(str(row['id']) for row in rows)}"
        return names

    def files(self, branch: str = "main") -> set[str]:
        """Return the paths of the live data files."""
        table = self.lake.load()
        tasks = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).plan_files()
        return {task.file.file_path for task in tasks}


def named(id: int | None, name: str, version: int | None = 0, **more: Any) -> Row:
    return {"id": id, "name": name, "version": version, **more}


def only_history_of_main(orders: Orders) -> bool:
    """Whether all snapshots are ancestors of main's head: others take files with them when they expire."""
    metadata = orders.lake.load().metadata
    history = {snapshot.snapshot_id for snapshot in ancestors_of(metadata.current_snapshot(), metadata)}
    return {snapshot.snapshot_id for snapshot in metadata.snapshots} == history
