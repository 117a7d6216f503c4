"""Measure the time to read the reports of many syncs: one request per report, and later one request per day."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.cloud import BUCKET, DATABASE, Cloud, cloud
from benchmarks.measure import Cost
from benchmarks.systems import CONNECTOR, config, measured, saved
from benchmarks.workload import Workload
from destination_datalake.reports.report import REPORT, ReportLine, Status, encode, timestamp

STREAMS = 3
DAYS = 90
WITHIN = {"seconds": 5, "MiB": 300}
"""The maximum cost of reading all reports for the second time."""


@dataclass(frozen=True)
class Reading:
    """A command that reads the reports of as many syncs as the workload has records.

    Each sync has three streams. The syncs are spread over 90 days. The first reading sends a request for each report,
    and combines the reports of each day into one object. The cost is the cost of the second reading, which reads these
    objects. `growth` is the cost of the first reading divided by the cost of the second one.
    """

    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the system in tables."""
        return f"ours, {self.command[0]}"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Write the reports, and read them twice."""
        with cloud() as lake:
            fill(workload.records, lake)
            options = saved(folder / "config.json", config(lake, {}))
            arguments = [argument.format(folder=folder) for argument in self.command]
            command = [*CONNECTOR, *arguments, "--config", options, "--days", f"{DAYS + 1}"]
            first, before = measured(command, None, folder, {}), lake.cpu_seconds()
            second = measured(command, None, folder, {})
            cloud_cpu = lake.cpu_seconds() - before
        growth = {metric: getattr(first, metric) / getattr(second, metric) for metric in ("seconds", "cpu_seconds")}
        return replace(second, cloud_cpu_seconds=cloud_cpu, growth=growth)


def fill(number: int, lake: Cloud) -> None:
    """Write the reports of `number` successful syncs, spread evenly over the last DAYS days."""
    s3, now = lake.client("s3"), datetime.now(UTC)

    def write(sync: int) -> None:
        began = now - timedelta(days=DAYS) * sync / number - timedelta(minutes=1)
        key = f"lake/_reports/day={began:%Y-%m-%d}/run_id={sync:012x}/{REPORT}"
        s3.put_object(Bucket=BUCKET, Key=key, Body=encode(lines(sync, began)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(number)))


def lines(sync: int, began: datetime) -> list[ReportLine]:
    """Return the report lines of a successful sync."""
    finished: Status = "finished"
    common = {
        "run_id": f"{sync:012x}",
        "connection_id": "c" * 16,
        "status": finished,
        "start_time": timestamp(began),
        "finish_time": timestamp(began + timedelta(seconds=12)),
        "seconds": 12.0,
        "database": DATABASE,
        "table_type": "ICEBERG",
        "file_format": "Parquet",
        "s3_bucket": BUCKET,
        "versions": {"pyspark": "4.1", "python": "3.11"},
    }
    whole = {
        "type": "source",
        "streams": STREAMS,
        "streams_failed": 0,
        "rows_received": 3000,
        "row_count": 3000,
        "aws_calls": {"s3.PutObject": 9, "glue.GetTable": 4, "glue.UpdateTable": 3},
    }
    figures = {
        "type": "event",
        "rows_received": 1000,
        "row_count": 1000,
        "files": 1,
        "bytes_written": 99_999,
        "table_files": 4,
        "table_bytes": 10**9,
        "table_snapshots": 5,
    }
    names = [f"stream_{number}" for number in range(STREAMS)]
    of_streams = [{**common, **figures, "stream_name": name, "table_name": name} for name in names]
    return [ReportLine(**values) for values in ({**common, **whole}, *of_streams)]  # type: ignore[arg-type]


READINGS = (Reading(("health",)), Reading(("report", "--html", "{folder}/syncs.html")))
