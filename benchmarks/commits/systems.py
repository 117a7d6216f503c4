"""Measure the cost of many commits: to one table, and in a long sync."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from benchmarks.cloud import cloud
from benchmarks.measure import Cost
from benchmarks.systems import CONNECTOR, WITH_ARCHIVE, BenchmarkError, config, measured, own_environment, saved
from benchmarks.workload import Workload


@dataclass(frozen=True)
class Commits:
    """As many commits to a table as the workload has records (benchmarks/commits/one_table.py).

    `Cost.growth` is the cost of the last commits divided by the cost of the first commits to a new table. The benchmark
    alternates between these commits, so that the age of the process has no effect.
    """

    name: str
    table_type: str

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Make the commits, and return their cost."""
        with cloud() as lake:
            command = [sys.executable, "-m", "benchmarks.commits.one_table"]
            cost = measured([*command, lake.url, self.table_type, str(workload.records)], None, folder, {})
            cost = replace(cost, cloud_cpu_seconds=lake.cpu_seconds())
        output = json.loads((folder / "stdout").read_text())
        growth = {metric: output["old"][metric] / output["new"][metric] for metric in ("seconds", "cpu_seconds")}
        return replace(cost, growth=growth | _growth(*output["held"]))


@dataclass(frozen=True)
class Steady:
    """A sync that commits each of several streams about once per second.

    The sync takes as many seconds as the workload has records. It uses the connector's command line, which receives a
    record and a state of each stream twice per second. `Cost.growth` contains the resources that the processes hold at
    the end, divided by the resources after a third of the time.
    """

    name: str = "a sync without end"
    options: Mapping[str, object] = field(default_factory=lambda: {"flush_interval_seconds": 1})

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Send records and states to the connector. Raises BenchmarkError unless it returns all states."""
        catalog = saved(folder / "catalog.json", workload.catalog())
        stdout, started = folder / "stdout", time.perf_counter()
        with cloud() as lake:
            arguments = ["write", "--config", saved(folder / "config.json", config(lake, self.options))]
            command = [*CONNECTOR, *arguments, "--catalog", catalog]
            with (
                stdout.open("wb") as out,
                _running(command, out.fileno(), own_environment(folder, WITH_ARCHIVE)) as process,
            ):
                held, sent = _feed(process, workload)
                code = process.wait(timeout=120)
            cloud_cpu = lake.cpu_seconds()
        echoed = sum(json.loads(line)["type"] == "STATE" for line in stdout.read_bytes().splitlines())
        if code or echoed != sent:
            raise BenchmarkError(f"{self.name}: exit code {code}, {echoed} of {sent} states came back")
        seconds = time.perf_counter() - started
        cpu = held[-1].pop("cpu_seconds")
        held[0].pop("cpu_seconds")
        return Cost(seconds, cpu, {}, held[-1]["memory_bytes"], code, 0.0, cloud_cpu, growth=_growth(*held))


COMMITS = (Commits("commits to an Iceberg table", "ICEBERG"), Commits("commits to a Hive table", "HIVE"))
STEADY = Steady()
STEADY_WITHIN = {"driver_bytes": 1.1, "threads": 1.05, "descriptors": 1.05}
"""The maximum growth of a sync's resources between a third of the time and the end. `driver_bytes` does not include the
JVM, which uses all memory up to its limit."""


def _feed(connector: subprocess.Popen[bytes], workload: Workload) -> tuple[list[dict[str, int]], int]:
    """Send a record and a state of each stream to the connector, twice per second.

    Returns the resources that the processes held after a third of the time and at the end, and the number of states.
    """
    assert connector.stdin is not None
    seconds, sent, held = workload.records, 0, []
    started = time.monotonic()
    for tick in range(2 * seconds):
        for name in workload.stream_names:
            sent += 1
            connector.stdin.write(_record(name, sent) + _state(name, sent))
        connector.stdin.flush()
        if tick in (2 * seconds // 3, 2 * seconds - 1):
            held.append(_held(connector.pid))
        time.sleep(max(0.0, started + (tick + 1) / 2 - time.monotonic()))
    for name in workload.stream_names:
        connector.stdin.write(_complete(name))
    connector.stdin.close()
    return held, sent


@contextmanager
def _running(command: list[str], stdout: int, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.DEVNULL, env=env, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()


def _held(pid: int) -> dict[str, int]:
    """Return the resources of a process and its descendants. `driver_bytes` is the memory of the process alone."""
    first = psutil.Process(pid)
    family = [first, *first.children(recursive=True)]
    return {
        "driver_bytes": first.memory_full_info().uss,
        "memory_bytes": sum(process.memory_full_info().pss for process in family),
        "threads": sum(process.num_threads() for process in family),
        "descriptors": sum(process.num_fds() for process in family),
        "cpu_seconds": int(sum(sum(process.cpu_times()[:2]) for process in family)),
    }


def _growth(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    return {metric: after[metric] / before[metric] for metric in after}


def _record(stream: str, number: int) -> bytes:
    data = {"id": number, "ref": f"r{number}", "score": number / 7}
    return _line({"type": "RECORD", "record": {"stream": stream, "data": data, "emitted_at": number}})


def _state(stream: str, number: int) -> bytes:
    described = {"stream_descriptor": {"name": stream}, "stream_state": {"cursor": number}}
    return _line({"type": "STATE", "state": {"type": "STREAM", "stream": described, "id": number}})


def _complete(stream: str) -> bytes:
    status = {"stream_descriptor": {"name": stream}, "status": "COMPLETE"}
    return _line({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 0, "stream_status": status}})


def _line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"
