"""Determine the costs for the simulation: from the results of `make bench`, and from short measurements."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cloud import cloud
from benchmarks.cluster import OnCluster
from benchmarks.simulation.model import GB, Costs

SMALL, LARGE = 1_000_000, 5_000_000
"""Two numbers of records. The difference between the costs of two such syncs excludes their start and end."""

_TASKS = 1000
_COMMITS = 60


class NotMeasured(Exception):
    """The results do not contain a figure. The message names this figure."""


def measured(results: Path) -> Costs:
    """Return the costs on this machine, from the figures in `results` and from short measurements.

    Raises NotMeasured if `results` does not contain a figure.
    """
    figures = json.loads(results.read_text())["figures"]
    local, remote = "ours", OnCluster().name
    read = _per_gb(figures, local, "driver")
    start = _figure(figures, remote, SMALL)["median_seconds"]
    task, job = _spark()
    return Costs(
        read=read,
        upload=max(0.0, _per_gb(figures, remote, "driver") - read),
        encode=_per_gb(figures, local, "workers"),
        job=job,
        task=task,
        commit=_commit(),
        start=start,
    )


def _per_gb(figures: Iterable[Mapping[str, Any]], system: str, process: str) -> float:
    """Return the CPU seconds that one kind of process needs for each additional gigabyte of messages."""
    small, large = (_figure(figures, system, records) for records in (SMALL, LARGE))
    seconds = _cpu(large, process) - _cpu(small, process)
    return float(seconds / (large["message_bytes"] - small["message_bytes"]) * GB)


def _cpu(figure: Mapping[str, Any], process: str) -> float:
    return float(median(run["cpu_by_process"][process] for run in figure["runs"]))


def _figure(figures: Iterable[Mapping[str, Any]], system: str, records: int) -> Mapping[str, Any]:
    for figure in figures:
        if (figure["system"], figure["workload"], figure["records"]) == (system, "flat", records):
            return figure
    raise NotMeasured(f"{system}: flat {records}")


def _spark() -> tuple[float, float]:
    """Return the seconds that Spark's scheduler needs for each additional task, and for a job with one task."""
    from destination_datalake.spark.classic.backend import ClassicBackend
    from destination_datalake.spark.classic.settings import ClassicSettings

    backend = ClassicBackend(ClassicSettings("local[*]", {}))
    backend.start()
    try:
        single = median(_seconds(backend, 1) for _ in range(5))
        return (_seconds(backend, _TASKS) - single) / _TASKS, single
    finally:
        backend.stop(orderly=False)


def _seconds(backend: Any, tasks: int) -> float:
    began = time.perf_counter()
    backend.run(_nothing, range(tasks))
    return time.perf_counter() - began


def _nothing(_: Iterable[int]) -> Iterator[int]:
    return iter(())


def _commit() -> float:
    """Return the CPU seconds of a commit to an Iceberg table."""
    with cloud() as lake:
        command = [sys.executable, "-m", "benchmarks.commits.one_table", lake.url, "ICEBERG", str(_COMMITS)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(json.loads(printed)["new"]["cpu_seconds"])
