"""Compaction of a thousand small files: `python -m benchmarks.maintenance.compaction [FILES ROWS]`.

The executors' job, which reads from S3 and writes to it, beside pyarrow, which reads from S3 or the local disk, and
DuckDB, which reads from the disk; all on one thread and each in a process of its own. Prints a line for each, with CPU
seconds per gigabyte of Arrow data, and their ratios.
"""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import S3FileSystem

from benchmarks.cloud import BUCKET, KEY, REGION, SECRET, cloud
from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.files.plan import Compacted, CompactTask, SourceFile
from destination_datalake.partitioning.spec import SortField, SortOrder

FILES, ROWS = 1000, 1000
FOLDER = f"s3://{BUCKET}/orders/data"
CONTENDERS = ("ours", "ours, sorted", "pyarrow, S3", "pyarrow", "DuckDB")


def main(files: int, rows: int) -> None:
    """Make the files, run all contenders in turn, three times, and print the best of each."""
    with cloud() as server, tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder, s3 = Path(name), server.client("s3")
        arrow_bytes = 0
        for number in range(files):
            table = _table(number, rows)
            arrow_bytes += table.nbytes
            body = io.BytesIO()
            pq.write_table(table, body, compression="zstd", store_schema=False)
            (folder / f"{number:06}.parquet").write_bytes(body.getvalue())
            s3.put_object(Bucket=BUCKET, Key=f"orders/data/{number:06}.parquet", Body=body.getvalue())
        stored = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{files} files of {rows} rows: {stored / 1e6:.1f} MB stored, {arrow_bytes / 1e6:.1f} MB in Arrow")
        best: dict[str, dict[str, float]] = {}
        for _ in range(3):
            for contender in CONTENDERS:
                before = server.cpu_seconds()
                found = _run(contender, server.url, folder)
                found["moto"] = server.cpu_seconds() - before
                assert found["rows"] == files * rows, found
                if contender not in best or found["cpu"] < best[contender]["cpu"]:
                    best[contender] = found
        for contender, found in best.items():
            print(
                f"{contender:14} {found['cpu']:6.2f} CPU s, {found['cpu'] / arrow_bytes * 1e9:5.2f} CPU s/GB, "
                f"{found['seconds']:6.2f} s, peak {found['peak'] / 1e6:4.0f} MB above the start's, "
                f"{found['bytes'] / 1e6:.1f} MB written, moto {found['moto']:.2f} CPU s"
            )
        for other in CONTENDERS[2:]:
            print(f"CPU: ours ÷ {other} {best['ours']['cpu'] / best[other]['cpu']:.2f}")


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


def _run(contender: str, url: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.maintenance.compaction", contender, url, str(folder)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def _contend(contender: str, url: str, folder: Path) -> dict[str, float]:
    paths = sorted(folder.glob("0*.parquet"))
    pa.set_cpu_count(1)
    if contender.startswith("ours"):
        task = _task(paths, url, is_sorted=contender.endswith("sorted"))
        from destination_datalake.files.compact import compact

        task.access.client("s3")
        work: Any = lambda: _size_of(compact([task]))  # noqa: E731
    elif contender == "pyarrow, S3":
        store = S3FileSystem(endpoint_override=url, access_key=KEY, secret_key=SECRET, region=REGION)
        keys = [f"{BUCKET}/orders/data/{path.name}" for path in paths]
        work = lambda: _pyarrow(ds.dataset(keys, format="parquet", filesystem=store), folder / "out.arrow")  # noqa: E731
    elif contender == "pyarrow":
        work = lambda: _pyarrow(ds.dataset(list(map(str, paths)), format="parquet"), folder / "out.arrow")  # noqa: E731
    else:
        work = lambda: _duckdb(folder)  # noqa: E731
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    rows, size = work()
    return {
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * 1024,
        "rows": rows,
        "bytes": size,
    }


def _task(paths: list[Path], url: str, *, is_sorted: bool) -> CompactTask:
    access = AwsAccess(REGION, AccessKeys(KEY, SECRET), url)
    rows = pq.read_metadata(paths[0]).num_rows
    sources = tuple(SourceFile(f"{FOLDER}/{path.name}", path.stat().st_size, rows) for path in paths)
    order = SortOrder((SortField(("customer",), ascending=True, nulls_first=True),), 1) if is_sorted else None
    return CompactTask("bin", sources, pq.read_schema(paths[0]), FOLDER, "ZSTD", order, access)


def _size_of(results: Any) -> tuple[int, int]:
    [result] = results
    assert isinstance(result, Compacted), result
    return result.rows, result.size


def _pyarrow(dataset: ds.Dataset, target: Path) -> tuple[int, int]:
    """Read and write with the connector's compression, to the local disk."""
    with pq.ParquetWriter(target, dataset.schema, compression="zstd", compression_level=1) as writer:
        for batch in dataset.to_batches(use_threads=False, batch_size=ROWS * 400):
            writer.write_batch(batch)
    return pq.read_metadata(target).num_rows, target.stat().st_size


def _duckdb(folder: Path) -> tuple[int, int]:
    import duckdb

    target = folder / "out.duckdb"
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(
        f"COPY (FROM read_parquet('{folder}/0*.parquet')) TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
    )
    return pq.read_metadata(target).num_rows, target.stat().st_size


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(_contend(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
    else:
        main(*(map(int, sys.argv[1:]) if len(sys.argv) == 3 else (FILES, ROWS)))
