"""Measure the cost of erasing rows with `delete-rows`, and with DuckDB, which rewrites the same files.

DuckDB works on the local disk, without history, commit and second search. The benchmark measures both on a large and on
a tiny table. The difference is the cost of the rows. The rest is constant (Python, the JVM, requests).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cloud import cloud
from benchmarks.dedup.references import Asked
from benchmarks.dedup.table import OPTIONS, Filled, fill
from benchmarks.dedup.workload import Upserts
from benchmarks.measure import Cost
from benchmarks.systems import CONNECTOR, BenchmarkError, config, measured, saved
from benchmarks.workload import Workload


def people(workload: Upserts, filled: Filled) -> list[str]:
    """Return the IDs to erase, which are the keys of the rows that the workload would update."""
    numbers = np.sort([number for number in workload.numbers() if number < workload.table_rows])
    keys = pa.concat_tables([pq.read_table(path, columns=[workload.key]) for path in filled.paths])[workload.key]
    return [str(key) for key in keys.take(pa.array(numbers, pa.int64())).to_pylist()]


@dataclass(frozen=True)
class Erasing:
    """The command `destination-datalake delete-rows`, including Spark's start, the second search and the report."""

    name: str = "ours, delete-rows"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Erase half as many rows as the workload has records. Raises BenchmarkError unless the other rows remain."""
        assert isinstance(workload, Upserts)
        with cloud() as lake:
            ids = people(workload, fill(workload, lake))
            (folder / "ids.txt").write_text("\n".join(ids))
            options = saved(folder / "config.json", config(lake, {**OPTIONS}))
            files, cloud_cpu = lake.files(), lake.cpu_seconds()
            asked = ["--all", "--column", workload.key, "--ids-file", str(folder / "ids.txt")]
            cost = measured([*CONNECTOR, "delete-rows", "--config", options, *asked], None, folder, {})
            cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds() - cloud_cpu)
            [table] = workload.stream_names
            if (rows := lake.rows(table)) != workload.table_rows - len(ids):
                raise BenchmarkError(f"{self.name}: table {table} has {rows} rows")
            written = [size for key, size in lake.files().items() if key not in files]
        return replace(cost, file_bytes=tuple(sorted(written, reverse=True)))


@dataclass(frozen=True)
class Reference:
    """DuckDB: an anti-join of the table's files with the IDs."""

    name: str = "DuckDB, anti join"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Rewrite the files without the rows to erase. Raises BenchmarkError if the number of rows is wrong."""
        assert isinstance(workload, Upserts)
        with cloud() as lake:
            filled = fill(workload, lake)
            ids = people(workload, filled)
            [table] = workload.stream_names
            pq.write_table(pa.table({workload.key: ids}), folder / "ids.parquet")
            asked = Asked(
                workload.key, (*map(str, filled.paths),), (str(folder / "ids.parquet"),), "", table, str(folder)
            )
            text = msgspec.json.encode(asked).decode()
            cost = measured([sys.executable, "-m", "benchmarks.dedup.references", "DuckDB", text], None, folder, {})
        output = json.loads((folder / "stdout").read_text())
        if output["rows"] != workload.table_rows:  # This number includes the rows of the file with the IDs.
            raise BenchmarkError(f"{self.name}: {output['rows']} rows")
        return replace(cost, file_bytes=(output["bytes"],))


ERASURES = (Erasing(), Reference())
