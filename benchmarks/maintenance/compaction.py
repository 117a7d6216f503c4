"""Compact small files into one: `python -m benchmarks.maintenance.compaction CONTENDER URL FOLDER`.

Each contender uses one thread. The connector's task for executors reads from S3 and writes to S3. pyarrow reads from S3
and writes to the local disk. DuckDB reads from and writes to the local disk. FOLDER and the bucket at URL contain the
same files. Prints a JSON document with the rows, bytes and seconds.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import S3FileSystem

from benchmarks.cloud import BUCKET, KEY, REGION, SECRET, Cloud
from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.files.plan import Compacted, CompactTask, SourceFile
from destination_datalake.partitioning.spec import SortField, SortOrder

ROWS = 1000
PREFIX = "orders/data"


def fill(files: int, cloud: Cloud, folder: Path) -> None:
    """Write `files` files of ROWS rows to the folder and to the bucket. The customers in each file are random."""
    s3 = cloud.client("s3")
    for number in range(files):
        body = io.BytesIO()
        pq.write_table(_table(number, ROWS), body, compression="zstd", store_schema=False)
        (folder / f"{number:06}.parquet").write_bytes(body.getvalue())
        s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{number:06}.parquet", Body=body.getvalue())


def _table(number: int, rows: int) -> pa.Table:
    random = np.random.default_rng(number)
    ids = np.arange(number * rows, (number + 1) * rows)
    columns: dict[str, Any] = {
        "id": ids,
        "customer": random.integers(0, 100_000, rows),
        "name": [f"customer {value}" for value in random.integers(0, 100_000, rows)],
        "email": [f"{value:x}@example.com" for value in random.integers(0, 2**40, rows)],
        "status": random.choice(["open", "paid", "shipped", "returned"], rows),
        "price": random.random(rows) * 100,
        "at": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us", tz="UTC")),
        "note": [f"{value:x}" * 8 for value in random.integers(0, 2**40, rows)],
        "is_new": random.random(rows) < 0.5,
    }
    table = pa.table(columns)
    fields = [
        field.with_metadata({"PARQUET:field_id": str(position)}) for position, field in enumerate(table.schema, start=1)
    ]
    return table.cast(pa.schema(fields))


def main(contender: str, url: str, folder: Path) -> None:
    """Compact the files with a contender, and print the cost as JSON."""
    pa.set_cpu_count(1)
    work = CONTENDERS[contender](sorted(folder.glob("0*.parquet")), url)
    wall, cpu = time.perf_counter(), time.process_time()
    rows, size = work()
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"rows": rows, "bytes": size, "seconds": seconds, "cpu_seconds": cpu_seconds}))


def _ours(paths: list[Path], url: str) -> Callable[[], tuple[int, int]]:
    return _compaction(_task(paths, url, None))


def _ours_sorted(paths: list[Path], url: str) -> Callable[[], tuple[int, int]]:
    return _compaction(_task(paths, url, SortOrder((SortField(("customer",), ascending=True, nulls_first=True),), 1)))


def _compaction(task: CompactTask) -> Callable[[], tuple[int, int]]:
    from destination_datalake.files.rewrite import compact

    task.access.client("s3")

    def work() -> tuple[int, int]:
        [result] = compact([task])
        assert isinstance(result, Compacted), result
        return result.rows, result.size

    return work


def _task(paths: list[Path], url: str, order: SortOrder | None) -> CompactTask:
    folder = f"s3://{BUCKET}/{PREFIX}"
    sources = tuple(SourceFile(f"{folder}/{path.name}", path.stat().st_size, ROWS) for path in paths)
    access = AwsAccess(REGION, AccessKeys(KEY, SECRET), url)
    return CompactTask("bin", sources, pq.read_schema(paths[0]), folder, "ZSTD", order, access)


def _pyarrow(paths: list[Path], url: str) -> Callable[[], tuple[int, int]]:
    store = S3FileSystem(endpoint_override=url, access_key=KEY, secret_key=SECRET, region=REGION)
    target = paths[0].with_name("out")

    def work() -> tuple[int, int]:
        dataset = ds.dataset([f"{BUCKET}/{PREFIX}/{path.name}" for path in paths], format="parquet", filesystem=store)
        with pq.ParquetWriter(target, dataset.schema, compression="zstd", compression_level=1) as writer:
            for batch in dataset.to_batches(use_threads=False, batch_size=400 * ROWS):
                writer.write_batch(batch)
        return pq.read_metadata(target).num_rows, target.stat().st_size

    return work


def _duckdb(paths: list[Path], _url: str) -> Callable[[], tuple[int, int]]:
    import duckdb

    connection, target = duckdb.connect(config={"threads": 1}), paths[0].with_name("out")

    def work() -> tuple[int, int]:
        source = f"read_parquet('{paths[0].parent}/0*.parquet')"
        connection.execute(f"COPY (FROM {source}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
        return pq.read_metadata(target).num_rows, target.stat().st_size

    return work


CONTENDERS = {
    "compaction": _ours,
    "compaction, sorted": _ours_sorted,
    "pyarrow from S3 to disk": _pyarrow,
    "DuckDB from disk to disk": _duckdb,
}
"""Maps the name of each contender to a function of the files and the URL. This function prepares the work, and returns
it as a function that returns the numbers of rows and bytes."""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
