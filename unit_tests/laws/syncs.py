"""Syncs into one table, through the connector's own tables and jobs: all of a sync but Spark and stdin."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import (
    DataFile,
    Encoded,
    EncodeUnit,
    IngestOrder,
    RewriteTask,
    Rewritten,
    split_into_tasks,
)
from destination_datalake.files.rewrite import publish_rewritten, rewrite
from destination_datalake.protocol.catalog import Stream
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.tables.catalog import TableCatalog
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.factory import open_table
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import Committed, Table, TableName
from unit_tests.cloud import BUCKET, on_disk, ungoverned
from unit_tests.tables.jobs import in_process


class TableSync:
    """One sync of a stream. `number` is one that no other sync into the table has."""

    def __init__(
        self,
        number: int,
        config: Config,
        stream: Stream,
        access: AwsAccess,
        folder: Path,
        catalog_of: Callable[[AwsAccess], TableCatalog] = ungoverned,
    ) -> None:
        self.stream = stream
        self._number = number
        self._config = config
        self._access = access
        self._catalog_of = catalog_of
        self._folder = folder
        self._batches = count()
        self._started = int(time.time() * 1000)
        self._table: Table | None = None

    @property
    def name(self) -> TableName:
        return TableNaming.from_config(self._config).table_of(self.stream.id)

    def begin(self) -> None:
        """Prepare the table."""
        jobs = in_process(self._folder / "scratch")
        context = TableContext(f"sync{self._number}", self._access, self._catalog_of(self._access), jobs)
        self._table = open_table(self.stream, self.name, self._config, context)
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
        staged = EncodeUnit(
            self.stream.id,
            f"sync{self._number}-{number:06d}",
            (on_disk(segment),),
            plan,
            rejects,
            ingest_order=IngestOrder(self._started + number, 0),
        )
        tasks = pickle.loads(pickle.dumps(split_into_tasks([staged], 2, self._access)))
        files: list[DataFile] = []
        for result in encode(tasks):
            assert isinstance(result, Encoded), result
            files += result.files
        return files

    def _rewrite(self, tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        return publish_rewritten([*rewrite(tasks)], self._access)
