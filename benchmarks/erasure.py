"""What it costs to erase rows: `delete-rows`, and DuckDB that finds the same rows and rewrites the same files.

DuckDB works on the local disk, keeps no history and commits nothing, and does not look again. So two runs of the
command are measured, of one table and of a tiny one: their difference is what the rows cost, and the rest what the
command costs always (Python, the JVM, requests).
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
    """Return the ids that are erased: the keys of the rows that the workload would update."""
    numbers = np.sort([number for number in workload.numbers() if number < workload.table_rows])
    keys = pa.concat_tables([pq.read_table(path, columns=[workload.key]) for path in filled.paths])[workload.key]
    return [str(key) for key in keys.take(pa.array(numbers, pa.int64())).to_pylist()]


@dataclass(frozen=True)
class Erasing:
    """`destination-datalake delete-rows`, Spark's start, the second search and the report included."""

    name: str = "ours, delete-rows"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Erase half as many rows as the workload has records; the others must be there."""
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
    """DuckDB: an anti join of the table's files and the ids."""

    name: str = "DuckDB, anti join"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Write the files again without the rows."""
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
        if output["rows"] != workload.table_rows:  # The ids are counted, too.
            raise BenchmarkError(f"{self.name}: {output['rows']} rows")
        return replace(cost, file_bytes=(output["bytes"],))


ERASURES = (Erasing(), Reference())
