"""Compare the merge of rows from many small batches with the merge of the same rows from one batch."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from benchmarks.cloud import Cloud, cloud
from benchmarks.commits.factory import opened
from benchmarks.dedup.rows import DAY, FIRST_CURSOR, rows
from benchmarks.dedup.table import OPTIONS, access_of, no_rewrite, schema_of, uploaded
from benchmarks.dedup.workload import deduplicated
from benchmarks.measure import Cost
from benchmarks.systems import CONNECTOR, WITH_ARCHIVE, BenchmarkError, config, measured, saved
from benchmarks.workload import Workload
from destination_datalake.files.parquet import ParquetFileWriter
from destination_datalake.protocol.catalog import Stream, parse_catalog
from destination_datalake.tables.table import Committed

if TYPE_CHECKING:
    from destination_datalake.aws.objects import Upload

KEY = "id"
STREAMS = 2
"""The number of streams with deduplication. Each other stream gets one record, so that the sync must start Spark."""


@dataclass(frozen=True)
class Pending:
    """A sync that merges rows that an earlier sync committed in `batches` batches per stream, but did not merge.

    Half of the rows update earlier rows. With 0 batches, there is nothing to merge. The difference to the cost with 0
    batches is the cost of the merge.
    """

    name: str
    batches: int

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Merge the rows. Raises BenchmarkError unless the table contains every key once."""
        configured = cast("list[dict[str, Any]]", workload.catalog()["streams"])
        merged, appended = configured[:STREAMS], workload.stream_names[STREAMS:]
        document = {"streams": [*(deduplicated(stream, KEY) for stream in merged), *configured[STREAMS:]]}
        numbers = _numbers(workload.records // workload.streams)
        with cloud() as lake:
            for stream in parse_catalog(document)[:STREAMS]:
                self._land(stream, numbers, workload, lake, folder)
            messages = folder / "messages.jsonl"
            messages.write_text("".join([*map(_record, appended), *map(_complete, workload.stream_names)]))
            arguments = ["--config", saved(folder / "config.json", config(lake, OPTIONS))]
            command = [*CONNECTOR, "write", *arguments, "--catalog", saved(folder / "catalog.json", document)]
            cloud_cpu, before = lake.cpu_seconds(), lake.files()
            cost = measured(command, messages, folder, WITH_ARCHIVE)
            cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds() - cloud_cpu)
            expected = len(np.unique(numbers)) if self.batches else 0
            for table in workload.stream_names:
                if (row_count := lake.rows(table)) != (1 if table in appended else expected):
                    raise BenchmarkError(f"{self.name}: table {table} has {row_count} rows, not {expected}")
            written = [size for key, size in lake.files().items() if key not in before]
            return replace(cost, file_bytes=tuple(sorted(written, reverse=True)))

    def _land(self, stream: Stream, numbers: Any, workload: Workload, lake: Cloud, folder: Path) -> None:
        """Commit the rows with these numbers, like a sync that is killed before the merge."""
        access = access_of(lake)
        table = opened(stream, stream.id.name, access, lake.url, OPTIONS)
        table.prepare()
        plan = table.plan()
        schema = schema_of(plan)
        cursors = FIRST_CURSOR + np.arange(len(numbers)) * DAY // len(numbers)
        landed = rows(workload.shape, numbers, cursors, schema)
        size = -(-len(numbers) // max(1, self.batches))
        for batch in range(self.batches):
            path = folder / f"{stream.id.name}-{batch:05}.parquet"
            with path.open("wb") as file:
                writer = ParquetFileWriter("ZSTD", schema, cast("Upload", file))
                writer.write(landed.slice(batch * size, size))
                writer.close()
            assert table.commit([uploaded(path, plan, access)], no_rewrite) == Committed()


def _numbers(records: int) -> Any:
    """Return the numbers of a stream's records. Each number occurs twice, usually far apart."""
    return np.concatenate([np.arange(records // 2), np.random.default_rng(records).permutation(records // 2)])


def _record(name: str) -> str:
    record = {"stream": name, "data": {"id": 1}, "emitted_at": 0}
    return json.dumps({"type": "RECORD", "record": record}) + "\n"


def _complete(name: str) -> str:
    status = {"stream_descriptor": {"name": name}, "status": "COMPLETE"}
    trace = {"type": "STREAM_STATUS", "emitted_at": 0, "stream_status": status}
    return json.dumps({"type": "TRACE", "trace": trace}) + "\n"


MANY_BATCHES, ONE_BATCH, NO_BATCH = (
    Pending("merge of 49 batches", 49),
    Pending("merge of one batch", 1),
    Pending("merge of nothing", 0),
)
