"""The systems whose upserts the benchmarks measure: the connector, and other tools that do the same work."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from benchmarks.cloud import DATABASE, KEY, REGION, SECRET, Cloud, cloud
from benchmarks.dedup.references import Asked
from benchmarks.dedup.table import OPTIONS, fill, fill_with_upserts, touched_bytes
from benchmarks.dedup.workload import Upserts
from benchmarks.measure import Cost
from benchmarks.systems import CONNECTOR, WITH_ARCHIVE, BenchmarkError, config, measured, saved
from benchmarks.workload import Workload

UPSERTS = "upserts"
WRITTEN = "bytes written ÷ files touched"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Merging:
    """A sync of the connector to an existing table.

    If `merges` is false, the sync appends the records. The difference to the cost with `merges` is the cost of the
    merge.
    """

    name: str
    dedup: Mapping[str, str] = field(default_factory=dict)
    merges: bool = True

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Write the workload. Raises BenchmarkError unless the table contains every key once."""
        assert isinstance(workload, Upserts)
        with cloud() as lake:
            filled = fill(workload, lake)
            catalog = saved(folder / "catalog.json", workload.catalog() if self.merges else workload.appended())
            options = saved(folder / "config.json", config(lake, {**OPTIONS, "dedup": self.dedup}))
            files, cloud_cpu = lake.files(), lake.cpu_seconds()
            command = [*CONNECTOR, "write", "--config", options, "--catalog", catalog]
            cost = measured(command, workload.messages(), folder, WITH_ARCHIVE)
            cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds() - cloud_cpu)
            [table] = workload.stream_names
            rows = lake.rows(table)
            wanted = workload.rows_after if self.merges else workload.table_rows + workload.records
            if rows != wanted:
                raise BenchmarkError(f"{self.name}: table {table} has {rows} rows, not {wanted}")
            written = [size for key, size in lake.files().items() if key not in files]
            ratio = {WRITTEN: sum(written) / touched_bytes(workload, filled)}
            return replace(cost, file_bytes=tuple(sorted(written, reverse=True)), growth=ratio)


@dataclass(frozen=True)
class Reference:
    """One of the contenders in benchmarks/dedup/references.py. `name` is the contender's name."""

    name: str

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Apply the upserts. Raises BenchmarkError if the number of keys is wrong."""
        assert isinstance(workload, Upserts)
        with cloud() as lake:
            filled, upserts = fill(workload, lake), fill_with_upserts(workload, lake, UPSERTS)
            [table] = workload.stream_names
            files, new = (tuple(map(str, workload_files.paths)) for workload_files in (filled, upserts))
            asked = Asked(workload.key, files, new, lake.url, table, str(folder))
            cloud_cpu = lake.cpu_seconds()
            command = [
                sys.executable,
                "-m",
                "benchmarks.dedup.references",
                self.name,
                msgspec.json.encode(asked).decode(),
            ]
            cost = measured(command, None, folder, {})
            cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds() - cloud_cpu)
        output = json.loads((folder / "stdout").read_text())
        if output["rows"] != workload.rows_after:
            raise BenchmarkError(f"{self.name}: {output['rows']} rows, not {workload.rows_after}")
        return replace(cost, file_bytes=(output["bytes"],))


def spark_sql(lake: Cloud, folder: Path, *statements: str) -> Cost:
    """Run SQL statements in Spark with Iceberg. Return the cost of the last one, without Spark's start."""
    uv = [str(ROOT / ".uv/bin/uv"), "run", "--no-project", "--isolated", "--with", "pyspark==4.1.*", "python"]
    command = [*uv, str(Path(__file__).with_name("spark_merge.py")), *statements]
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    cost = measured(command, None, folder, keys | {"ENDPOINT": lake.url, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"})
    last = json.loads((folder / "stdout").read_text().splitlines()[-1])
    return replace(cost, seconds=last["seconds"], cpu_seconds=last["cpu_seconds"])


@dataclass(frozen=True)
class SparkMerge:
    """MERGE in Spark with Iceberg's runtime, which Spark downloads. `mode` is copy-on-write or merge-on-read.

    The seconds and CPU seconds exclude Spark's start.
    """

    mode: str

    @property
    def name(self) -> str:
        """The name of the system in tables."""
        return f"Spark MERGE, {self.mode}"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Apply the upserts. Raises BenchmarkError if the number of keys is wrong."""
        assert isinstance(workload, Upserts)
        with cloud() as lake:
            fill(workload, lake)
            fill_with_upserts(workload, lake, UPSERTS)
            [name] = workload.stream_names
            table, cloud_cpu = f"glue.{DATABASE}.{name}", lake.cpu_seconds()
            properties = f"ALTER TABLE {table} SET TBLPROPERTIES ('write.merge.mode' = '{self.mode}')"
            merge = (
                f"MERGE INTO {table} t USING glue.{DATABASE}.{UPSERTS} s ON t.{workload.key} = s.{workload.key} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
            cost = spark_sql(lake, folder, properties, merge)
            cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds() - cloud_cpu)
            rows = lake.rows(name)
        if rows != workload.rows_after:
            raise BenchmarkError(f"{self.name}: {rows} rows, not {workload.rows_after}")
        return cost


COPY_ON_WRITE = Merging("ours, copy-on-write")
MERGE_ON_READ = Merging("ours, merge-on-read", {"deletes": "merge_on_read"})
APPEND = Merging("ours, appended", merges=False)
DUCKDB, PYICEBERG = map(Reference, ("DuckDB", "PyIceberg upsert"))
SPARK_MERGES = tuple(map(SparkMerge, ("copy-on-write", "merge-on-read")))
