"""The systems that the benchmarks measure: the connector, the limit of the libraries, and other tools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from compileall import compile_dir
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pyarrow.parquet as pq

import destination_datalake
from benchmarks.cloud import BUCKET, DATABASE, KEY, REGION, SECRET, Cloud, cloud, environment
from benchmarks.measure import Cost, measure
from benchmarks.references.environments import dlt_python
from benchmarks.workload import CURSOR, DAYS, FLAT, LONG, MONTH, MONTH_IN_ORDER, Shape, Workload, cache_folder
from destination_datalake.spark.classic.settings import ARCHIVE_VARIABLE

CONNECTOR = (str(Path(sys.executable).with_name("destination-datalake")),)


ARCHIVE = cache_folder() / "spark.jsa"
WITH_ARCHIVE = {ARCHIVE_VARIABLE: str(ARCHIVE)}
WITHOUT_ARCHIVE = {ARCHIVE_VARIABLE: str(ARCHIVE.with_name("none"))}


class BenchmarkError(Exception):
    """A system failed, or the lake does not contain the records that the system received."""


class System(Protocol):
    """A system whose cost the benchmarks can measure."""

    @property
    def name(self) -> str:
        """The name of the system in tables."""
        ...

    def run(self, workload: Workload, folder: Path, /) -> Cost:
        """Run the workload on a new emulated AWS, with temporary files in `folder`, and return the cost.

        Raises BenchmarkError if the system fails or loses data.
        """
        ...


@dataclass(frozen=True)
class Connector:
    """The command `destination-datalake write`, measured from the start of its process to the exit.

    As in the image, the JVM uses a class-data archive, unless `env` disables the archive. `of_streams` contains options
    that apply to each stream.
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    of_streams: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=lambda: WITH_ARCHIVE)
    command: tuple[str, ...] = CONNECTOR

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Write the workload. Raises BenchmarkError unless every row is readable and every state was returned."""
        with cloud() as lake:
            return self.write(workload, lake, folder)

    def write(self, workload: Workload, lake: Cloud, folder: Path) -> Cost:
        """Write the workload like `run`, but to the given lake. Leave the configuration in the file `config.json`."""
        catalog = saved(folder / "catalog.json", workload.catalog())
        streams = [{"stream": name, **self.of_streams} for name in workload.stream_names if self.of_streams]
        options = saved(folder / "config.json", config(lake, {**self.options, "streams": streams}))
        command = [*self.command, "write", "--config", options, "--catalog", catalog]
        cost = measured(command, workload.messages(), folder, self.env)
        cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds(), file_bytes=lake.file_sizes())
        _require(_count_states(folder / "stdout") == workload.states, f"{self.name}: not every state came back")
        for position, table in enumerate(workload.stream_names):
            rows, sent = lake.rows(table), workload.records_of(position)
            _require(rows == sent, f"{self.name}: table {table} has {rows} rows, {sent} were sent")
        return cost


@dataclass(frozen=True)
class Replay:
    """The command `destination-datalake replay` with a sync's archive and another table, including Spark's start.

    `growth` is the cost of the replay divided by the cost of the sync that wrote the archive just before. `sync` is the
    system that runs this sync.
    """

    sync: Connector
    name: str = "ours, replay"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Archive the workload, and replay the archive. Raises BenchmarkError unless every row is readable."""
        [table] = workload.stream_names
        with cloud() as lake:
            written = self.sync.write(workload, lake, folder)
            before = lake.cpu_seconds()
            command = [*CONNECTOR, "replay", "--config", str(folder / "config.json"), "--stream", table]
            cost = measured(command, None, folder, self.sync.env)
            cloud_cpu = lake.cpu_seconds() - before
            rows = lake.rows(f"{table}__replay")
        _require(rows == workload.records, f"{self.name}: {rows} rows, {workload.records} were archived")
        growth = {metric: getattr(cost, metric) / getattr(written, metric) for metric in ("seconds", "cpu_seconds")}
        return replace(cost, cloud_cpu_seconds=cloud_cpu, growth=growth)


@dataclass(frozen=True)
class Command:
    """The command `spec` or `check`. These commands read no messages, and print one result."""

    name: str

    def run(self, _workload: Workload, folder: Path) -> Cost:
        """Run the command, and ignore the workload. Raises BenchmarkError if the result is not as expected."""
        with cloud() as lake:
            arguments = ["--config", saved(folder / "config.json", config(lake, {}))] if self.name == "check" else []
            cost = measured([*CONNECTOR, self.name, *arguments], None, folder, {})
        answer = (folder / "stdout").read_text()
        _require('"SPEC"' in answer or '"SUCCEEDED"' in answer, f"{self.name}: no good answer: {answer}")
        return cost


@dataclass(frozen=True)
class LocalReference:
    """A module in benchmarks/references/ that writes Parquet files to the local disk, without upload and commit."""

    name: str
    module: str

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Encode the workload. Raises BenchmarkError unless the files contain every record."""
        catalog = saved(folder / "catalog.json", workload.catalog())
        files = folder / "files"
        files.mkdir()
        module = f"benchmarks.references.{self.module}"
        command = [sys.executable, "-m", module, str(workload.messages()), catalog, str(files)]
        cost = measured(command, None, folder, {})
        rows = sum(pq.read_metadata(file).num_rows for file in files.iterdir())
        _require(rows == workload.records, f"{self.name}: the files have {rows} rows, {workload.records} were sent")
        return cost


@dataclass(frozen=True)
class Ancestor:
    """The same work with Airbyte's CDK, pandas and awswrangler (benchmarks/references/ancestor.py)."""

    name: str = "ancestor's way"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Write the workload. Raises BenchmarkError unless every row is readable and every state was returned."""
        catalog = saved(folder / "catalog.json", workload.catalog())
        module = "benchmarks.references.ancestor"
        with cloud() as lake:
            command = [sys.executable, "-m", module, str(workload.messages()), catalog, lake.url]
            cost = measured(command, None, folder, {})
            cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds())
            _require(_count_states(folder / "stdout") == workload.states, f"{self.name}: not every state came back")
            (table,) = workload.stream_names
            rows = lake.rows(table)
            _require(rows == workload.records, f"the ancestor's way wrote {rows} of {workload.records} rows")
            return cost


@dataclass(frozen=True)
class Dlt:
    """dlt in its own environment (benchmarks/references/dlt_pipeline.py). It only writes Parquet files to S3."""

    name: str = "dlt"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Load the workload. Raises BenchmarkError unless the files contain every record."""
        catalog = saved(folder / "catalog.json", workload.catalog())
        script = Path(__file__).with_name("references") / "dlt_pipeline.py"
        with cloud() as lake:
            arguments = [str(workload.messages()), catalog, lake.url, BUCKET, KEY, SECRET]
            cost = measured([str(dlt_python()), str(script), *arguments], None, folder, {})
            cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds())
            (table,) = workload.stream_names
            rows = lake.rows_below(f"dlt/{table}")
        _require(rows == workload.records, f"dlt wrote {rows} of {workload.records} rows")
        return cost


LIMIT = LocalReference("limit", "limit")
"""The upper limit: what pyarrow reaches on this machine."""
DUCKDB_COPY = LocalReference("DuckDB COPY", "duckdb_copy")

OURS = Connector("ours")
HIVE = Connector("ours, Hive Parquet", {"table_type": "HIVE"})
ARCHIVED = Connector("ours, archived", {"raw_archive": {"enabled": True}})
REPLAY = Replay(ARCHIVED)
UNREPORTED = Connector("ours, no report", {"sync_reports": False})


@dataclass(frozen=True)
class Partitioned:
    """A comparison of a table with partitions or a sort order (`system`) with a plain table (`plain`).

    Both write records of the same shape. The target is the fraction `share` of the plain table's speed.
    """

    system: Connector
    plain: Connector
    shape: Shape
    share: float

    @property
    def systems(self) -> tuple[Connector, Connector]:
        """The two systems to compare, the plain one first."""
        return self.plain, self.system


def _partitioned() -> Iterator[Partitioned]:
    by_hour = {"partitioning": "YEAR/MONTH/DAY/HOUR", "partition_source": "extracted_at"}
    for plain in (OURS, HIVE):
        by_day = Connector(f"{plain.name}, by day", {**plain.options, "partitioning": "DATE"})
        yield Partitioned(by_day, plain, MONTH, 0.85)
        yield Partitioned(by_day, plain, MONTH_IN_ORDER, 0.85)
        yield Partitioned(by_day, plain, LONG, 0.5)
        yield Partitioned(Connector(f"{plain.name}, by hour", {**plain.options, **by_hour}), plain, MONTH, 0.95)
    buckets = {"partition_by": [{"source": "ref", "transform": "bucket[500]"}]}
    yield Partitioned(Connector("ours, 500 buckets", of_streams=buckets), OURS, MONTH, 0.5)
    yield Partitioned(Connector("ours, sorted", of_streams={"sort_by": [{"source": CURSOR}]}), OURS, MONTH, 0.7)


PARTITIONED = tuple(_partitioned())

FILLING = ((OURS, FLAT), (Connector("ours, by day", {"partitioning": "DATE"}), DAYS))
"""The systems whose files must be near the target size, each with the shape of the workload."""


def build_archive() -> None:
    """Create byte code and the JVM's class-data archive, as in the image, for a fast start. Takes about ten seconds.

    Without byte code, Python would compile the package at each start of the connector and of its workers if
    PYTHONDONTWRITEBYTECODE is set.
    """
    compile_dir(Path(destination_datalake.__file__).parent, quiet=1)
    command = [sys.executable, "-m", "destination_datalake.spark.classic.jvm_archive"]
    subprocess.run(command, env=environment() | WITH_ARCHIVE, capture_output=True, check=True)


def config(lake: Cloud, options: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration of the connector for this lake, with these options."""
    credentials = {
        "credentials_title": "IAM User",
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
    }
    return {
        "credentials": credentials,
        "region": REGION,
        "bucket_name": BUCKET,
        "bucket_prefix": "lake",
        "lakeformation_database_name": DATABASE,
        "endpoint_url": lake.url,
        **options,
    }


def saved(path: Path, document: Mapping[str, object]) -> str:
    """Write a document as JSON to a file, and return the file's path."""
    path.write_text(json.dumps(document))
    return str(path)


def own_environment(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a measured process: `env`, with temporary files in `folder`."""
    return environment() | {"TMPDIR": str(folder)} | dict(env)


def measured(command: list[str], messages: Path | None, folder: Path, env: Mapping[str, str]) -> Cost:
    """Run a command to its end, and return the cost. Write the command's output to `stdout` and `stderr` in `folder`.

    `messages` is the file for the command's standard input, or None for no input. Raises BenchmarkError if the command
    fails.
    """
    stdout, stderr = folder / "stdout", folder / "stderr"
    cost = measure(command, stdin=messages, stdout=stdout, stderr=stderr, env=own_environment(folder, env))
    if cost.exit_code != 0:
        output = "\n".join(path.read_text(errors="replace")[-3000:] for path in (stdout, stderr))
        raise BenchmarkError(f"{' '.join(command)} ended with exit code {cost.exit_code}:\n{output}")
    return cost


def _count_states(stdout: Path) -> int:
    with stdout.open("rb") as lines:
        return sum(json.loads(line)["type"] == "STATE" for line in lines)


def _require(met: bool, otherwise: str) -> None:
    if not met:
        raise BenchmarkError(otherwise)
