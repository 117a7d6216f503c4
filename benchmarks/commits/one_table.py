"""Commit many times to one table: `python -m benchmarks.commits.one_table URL TABLE_TYPE COMMITS`.

Each commit adds one file of a few rows, as a batch does, with the connector's table class and the emulated AWS at URL.
The benchmark excludes Spark, records and states. Prints a JSON document with the median wall and CPU seconds of commits
at several points, and the resources of the process after a third of the commits and at the end.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Sequence
from statistics import median
from uuid import uuid4

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cloud import KEY, REGION, SECRET
from benchmarks.commits.factory import opened
from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.aws.objects import Upload
from destination_datalake.files.parquet import with_field_ids
from destination_datalake.files.plan import DataFile, FilePlan, RewriteTask, Rewritten
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.arrow import arrow_field
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.table import Committed

ROWS = 3
AROUND = 10
POINTS = (10, 100, 200, 500)


class Committing:
    """A new table in the lake, and the wall and CPU seconds of each commit to this table."""

    def __init__(self, name: str, url: str, table_type: str) -> None:
        self._access = AwsAccess(REGION, AccessKeys(KEY, SECRET), url)
        self._table = opened(_stream(name), name, self._access, url, {"table_type": table_type})
        self._table.prepare()
        self.costs: list[tuple[float, float]] = []

    def commit(self) -> None:
        """Write a file, and commit it. Measure only the commit."""
        file = _file(self._table.plan(), len(self.costs), self._access)
        wall, cpu = time.perf_counter(), time.process_time()
        assert self._table.commit([file], _no_rewrite) == Committed()
        self.costs.append((time.perf_counter() - wall, time.process_time() - cpu))

    def median(self, around: int) -> dict[str, float]:
        """Return the median cost of the 20 commits around commit number `around`."""
        costs = self.costs[around - AROUND : around + AROUND]
        walls, cpus = zip(*costs, strict=True)
        return {"commit": around, "seconds": median(walls), "cpu_seconds": median(cpus)}


def main(url: str, table_type: str, commits: int) -> None:
    """Make the commits, and print their costs as JSON."""
    old, new = Committing("old", url, table_type), Committing("new", url, table_type)
    held = []
    for number in range(1, commits - AROUND + 1):
        old.commit()
        if number in (commits // 3, commits - AROUND):
            held.append(_held())
    for _ in range(2 * AROUND):
        old.commit()
        new.commit()
    points = [old.median(around) for around in POINTS if around < commits]
    document = {"new": new.median(AROUND), "old": old.median(commits), "points": points, "held": held}
    print(json.dumps({**document, "most_seconds": max(old.costs)[0]}))


def _stream(name: str) -> Stream:
    properties = {"id": {"type": "integer"}, "name": {"type": "string"}, "price": {"type": "number"}}
    return Stream(StreamId(None, name), {"type": "object", "properties": properties}, False, 1, 0, 1)


def _file(plan: FilePlan, number: int, access: AwsAccess) -> DataFile:
    fields = [arrow_field(field) for field in (*METADATA_COLUMNS, *plan.columns)]
    schema = with_field_ids(pa.schema(fields), plan.field_ids) if plan.field_ids else pa.schema(fields)
    rows = [{"id": number * ROWS + row, "name": f"order {number}", "price": number / 7} for row in range(ROWS)]
    body, footer = io.BytesIO(), io.BytesIO()
    with pq.ParquetWriter(body, schema, store_schema=False) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    writer.writer.metadata.write_metadata_file(footer)
    upload = Upload(access.client("s3"), f"{plan.folder}/{uuid4().hex}.parquet", deferred=plan.deferred)
    upload.write(body.getvalue())
    upload.close()
    nulls = frozenset(field.name for field in METADATA_COLUMNS)
    size = len(body.getvalue())
    return DataFile(upload.uri, size, ROWS, plan.columns, footer.getvalue(), upload.pending_upload, nulls)


def _no_rewrite(_tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
    raise AssertionError("no column becomes wider")


def _held() -> dict[str, int]:
    process = psutil.Process()
    return {
        "memory_bytes": process.memory_info().rss,
        "threads": threading.active_count(),
        "descriptors": process.num_fds(),
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
