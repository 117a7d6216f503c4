"""`python -m benchmarks.dedup.hourly`: measure many small syncs of upserts with random keys, and later reads.

Each sync sends as many updates as new rows. DuckDB and Spark then read the table, and a table with the same number of
rows but without deleted rows in its files. Requires the environments that `make test-all` and `make bench
ARGS=--spark-merge` download.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cloud import BUCKET, DATABASE, Cloud, cloud
from benchmarks.dedup.systems import ROOT, spark_sql
from benchmarks.dedup.table import OPTIONS, fill
from benchmarks.dedup.workload import TABLE_ROWS, Upserts
from benchmarks.measure import Cost
from benchmarks.systems import CONNECTOR, WITH_ARCHIVE, BenchmarkError, config, measured, saved
from unit_tests.laws.dedup.extension.environment import PYTHON

READS = 3
"""The number of times that DuckDB reads a table. The result is the median."""


@dataclass(frozen=True)
class HourlyUpserts(Upserts):
    """The upserts of one sync. Half of them update random rows, and half of them add new rows."""

    sync: int = 0

    @property
    def name(self) -> str:
        """The name of the workload, with the number of the sync and the size of the table.

        Each sync has its own messages, and therefore its own name.
        """
        return f"upserts {self.sync} of {self.table_rows}"

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the rows to upsert."""
        updates = self.records // 2
        first = self.table_rows + self.sync * (self.records - updates)
        random = np.random.default_rng(self.sync)
        updated = random.choice(self.table_rows, updates, replace=False, shuffle=False)
        return iter([*updated.tolist(), *range(first, first + self.records - updates)])


@dataclass(frozen=True)
class Reading:
    """The CPU seconds that two engines need to aggregate all rows of a table, and the numbers of the table's files."""

    duckdb: float
    spark: float
    data_files: int
    delete_files: int


@dataclass(frozen=True)
class Hourly:
    """The total costs of all syncs, and the cost of reading the table afterwards.

    `written` is the number of bytes in the data files and delete files that the syncs wrote.
    """

    seconds: float
    cpu_seconds: float
    written: int
    reading: Reading


def run(rows: int, syncs: int, upserts: int, deletes: str, maintenance: str) -> tuple[Hourly, Reading]:
    """Run the syncs in a new lake. Return their costs, and the cost of reading the table before the first sync."""
    workload = HourlyUpserts(records=upserts, table_rows=rows)
    [name] = workload.stream_names
    with cloud() as lake, tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        fill(workload, lake)
        before = _read(lake, name, folder)
        stored, costs = lake.files(), list[Cost]()
        own = {"dedup": {"deletes": deletes}, "maintenance": {"mode": maintenance}}
        options = saved(folder / "config.json", config(lake, {**OPTIONS, **own}))
        for sync in range(syncs):
            workload = replace(workload, sync=sync)
            catalog = saved(folder / "catalog.json", workload.catalog())
            command = [*CONNECTOR, "write", "--config", options, "--catalog", catalog]
            costs.append(measured(command, workload.messages(), folder, WITH_ARCHIVE))
        row_count, expected = lake.rows(name), rows + syncs * (upserts - upserts // 2)
        if row_count != expected:
            raise BenchmarkError(f"{deletes}: the table has {row_count} rows, not {expected}")
        written = sum(size for key, size in lake.files().items() if key not in stored)
        seconds, cpu_seconds = (sum(getattr(cost, name) for cost in costs) for name in ("seconds", "cpu_seconds"))
        return Hourly(seconds, cpu_seconds, written, _read(lake, name, folder)), before


def _read(lake: Cloud, name: str, folder: Path) -> Reading:
    table = lake.iceberg_table(name)
    assert table is not None
    files = [*table.scan().plan_files()]
    deletes = {delete.file_path for file in files for delete in file.delete_files}
    read = f"SELECT count(*), sum(score), max(ref) FROM glue.{DATABASE}.{name}"
    # Read once before measuring, because the first read loads and compiles Spark's classes.
    spark = spark_sql(lake, folder, read, read).cpu_seconds
    return Reading(_duckdb(lake, table.metadata_location, folder), spark, len(files), len(deletes))


def _duckdb(lake: Cloud, location: str, folder: Path) -> float:
    """Return the CPU seconds that DuckDB needs to read the table from a local copy of the bucket."""
    copy = folder / "copy"
    s3 = lake.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for entry in page.get("Contents", ()):
            path = copy / BUCKET / entry["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(BUCKET, entry["Key"], str(path))
    script = Path(__file__).with_name("duckdb_read.py")
    command = [str(PYTHON), str(script), str(copy), location, str(READS)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    shutil.rmtree(copy)
    return float(done.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each option for deleting replaced rows, and print a table. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dedup.hourly", description=__doc__)
    parser.add_argument("--rows", type=int, default=TABLE_ROWS, help="rows of the table (default 10 million)")
    parser.add_argument("--syncs", type=int, default=50)
    parser.add_argument("--upserts", type=int, default=1_000, help="records of each sync")
    parser.add_argument("--deletes", nargs="+", default=["copy_on_write", "merge_on_read"])
    parser.add_argument("--maintenance", choices=("none", "connector"), default="none")
    asked = parser.parse_args(arguments)
    table = Table(title=f"{asked.syncs} syncs of {asked.upserts} upserts into {asked.rows} rows")
    headings = ("seconds", "CPU seconds", "MB written", "data files", "delete files", "DuckDB", "Spark")
    for heading in ("deletes", *headings):
        table.add_column(heading, justify="right")
    for deletes in asked.deletes:
        hourly, before = run(asked.rows, asked.syncs, asked.upserts, deletes, asked.maintenance)
        now = hourly.reading
        costs = (f"{hourly.seconds:.0f}", f"{hourly.cpu_seconds:.0f}", f"{hourly.written / 1e6:.1f}")
        files = (f"{before.data_files} → {now.data_files}", str(now.delete_files))
        engines = (f"{before.duckdb:.2f} → {now.duckdb:.2f}", f"{before.spark:.2f} → {now.spark:.2f}")
        table.add_row(deletes, *costs, *files, *engines)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
