"""Syncs into one table, through the connector's own tables and jobs: all of a sync but Spark and stdin."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.groups.maintenance import Retention
from destination_datalake.config.options import Config
from destination_datalake.files.compact import compact
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import DataFile, RewriteTask, Rewritten
from destination_datalake.files.rewrite import published, rewrite
from destination_datalake.files.tasks import Encoded, StagedBatch, split_into_tasks
from destination_datalake.maintenance.steps import Maintainer
from destination_datalake.protocol.catalog import Stream, parse_catalog
from destination_datalake.rejects.location import RejectLocation
from destination_datalake.tables.factory import TableFactory
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import Committed, Table, TableName
from unit_tests.cloud import BUCKET, on_disk, ungoverned
from unit_tests.config.examples import options
from unit_tests.laws.dedup.histories import History, Step
from unit_tests.laws.dedup.model.worlds import Sync
from unit_tests.tables.jobs import in_process


def maintain(table: TableName, access: AwsAccess, days: int) -> None:
    """Maintain a table, so many days from now. Fails if a step does."""
    maintainer = Maintainer(
        Retention(snapshot_retention_days=2, min_snapshots_to_keep=1, orphan_retention_days=1),
        1024 * 1024,
        access,
        lambda tasks: list(compact(tasks)),
        lambda: True,
        now=lambda: datetime.now(UTC) + timedelta(days=days),
    )
    for report in (maintainer.compact(table), *maintainer.remove(table)):
        assert report.failure is None, report


class RunningSync:
    """One sync. `number` is one that no other sync into the table has."""

    def __init__(
        self, history: History, step: Step, asked: Sync, number: int, stream: str, access: AwsAccess, folder: Path
    ) -> None:
        self._number = number
        self._access = access
        self._folder = folder
        self._batches = count()
        self._started = int(time.time() * 1000)
        self._history, self._step, self._asked, self._name = history, step, asked, stream
        self._table: Table | None = None

    @cached_property
    def config(self) -> Config:
        return Config.parse(
            options(
                bucket_name=BUCKET,
                bucket_prefix="lake",
                table_type="ICEBERG",
                numeric_types="decimal" if self._history.decimals else "int/float",
                streams=[{"stream": self._name, "partition_by": [*self._history.partition_by(self._step)]}],
                dedup={
                    "deletes": "merge_on_read" if self._step.merge_on_read else "copy_on_write",
                    "cdc_deletion": "soft" if self._step.soft else "hard",
                },
            )
        )

    @property
    def stream(self) -> Stream:
        """The stream, as the configured catalog of the sync has it."""
        history, step, asked = self._history, self._step, self._asked
        cursor = history.cursor(step)
        configured: dict[str, Any] = {
            "stream": {"name": self._name, "json_schema": history.schema(step)},
            "destination_sync_mode": "append" if asked.by is None else "append_dedup",
            "cursor_field": [] if cursor is None else [cursor],
            "primary_key": [[name] for name in history.key],
            "generation_id": asked.generation,
            "minimum_generation_id": asked.generation if asked.overwrites else 0,
            "sync_id": self._number,
        }
        [stream] = parse_catalog({"streams": [configured]})
        return stream

    @property
    def name(self) -> TableName:
        return TableNaming.of(self.config).table_of(self.stream.id)

    def begin(self) -> None:
        """Prepare the table."""
        jobs = in_process(self._folder / "scratch")
        factory = TableFactory(self.config, f"sync{self._number}", self._access, ungoverned(self._access), jobs)
        self._table = factory.open(self.stream, self.name)
        self._table.prepare()

    def land(self, lines: Sequence[bytes]) -> None:
        """Encode a batch, and commit it."""
        assert self._table is not None
        number = next(self._batches)
        segment = self._folder / f"{self._number}-{number}.jsonl"
        segment.write_bytes(b"".join(lines))
        for _ in range(5):
            files = self._encoded(segment, number)
            assert sum(file.rows for file in files) == len(lines)
            if self._table.commit(files, self._rewrite) == Committed():
                return
        raise AssertionError("the table has changed under each of five encodings")

    def merge(self) -> None:
        """Merge what was landed, before the end."""
        assert self._table is not None
        self._table.merge()

    def end(self) -> None:
        """Publish the table."""
        assert self._table is not None
        self._table.publish(self._rewrite)

    def _encoded(self, segment: Path, number: int) -> list[DataFile]:
        assert self._table is not None
        rejects = RejectLocation(f"s3://{BUCKET}/_errors", f"sync{self._number}", "2026-11-21", *self.name)
        plan = self._table.plan()
        staged = StagedBatch(
            self.stream.id,
            f"sync{self._number}-{number:06d}",
            (on_disk(segment),),
            plan,
            rejects,
            arrived=self._started + number,
        )
        tasks = pickle.loads(pickle.dumps(split_into_tasks([staged], 2, self._access)))
        files: list[DataFile] = []
        for result in encode(tasks):
            assert isinstance(result, Encoded), result
            files += result.files
        return files

    def _rewrite(self, tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        return published([*rewrite(tasks)], self._access)
