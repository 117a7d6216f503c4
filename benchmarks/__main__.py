"""`python -m benchmarks`: run every system on every workload, print the results, and save them as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from benchmarks.cluster import OnCluster
from benchmarks.commits.systems import COMMITS, STEADY
from benchmarks.dedup.batches import MANY_BATCHES, NO_BATCH, ONE_BATCH
from benchmarks.dedup.systems import APPEND, COPY_ON_WRITE, DUCKDB, MERGE_ON_READ, PYICEBERG, SPARK_MERGES, Merging
from benchmarks.dedup.workload import ORDERS, Upserts
from benchmarks.erasure import ERASURES
from benchmarks.maintenance.systems import SMALL_FILES
from benchmarks.measure import Cost
from benchmarks.reading import READINGS
from benchmarks.report import Result, figures_table, targets, targets_table
from benchmarks.simulation.__main__ import print_simulation
from benchmarks.simulation.costs import NotMeasured
from benchmarks.systems import (
    ARCHIVED,
    DUCKDB_COPY,
    FILLING,
    HIVE,
    LIMIT,
    OURS,
    PARTITIONED,
    REPLAY,
    UNREPORTED,
    WITHOUT_ARCHIVE,
    Ancestor,
    BenchmarkError,
    Command,
    Connector,
    Dlt,
    Replay,
    System,
    build_archive,
)
from benchmarks.workload import FLAT, FLAWED, OPEN, QUOTED, WIDE, WIDE_SHARE, Workload

SIZES = (1_000_000, 5_000_000)
QUICK_SIZE = 100_000
ARCHIVED_RECORDS = 1_000_000
"""The minimum number of records in the benchmark of replays. With fewer records, Spark's start would dominate."""

RESULTS = Path(__file__).with_name("results")

NO_ARCHIVE = Connector("ours, no archive", env=WITHOUT_ARCHIVE)
JSON_LINES = Connector("ours, JSON Lines", {"table_type": "HIVE", "format": {"format_type": "JSONL"}})


@dataclass(frozen=True)
class Case:
    """A system, and the workload that the benchmark runs on this system."""

    system: System
    workload: Workload

    @property
    def label(self) -> str:
        """The name of the case in the progress display. The option `--only` selects cases by this name."""
        return f"{self.system.name}: {self.workload.name} {self.workload.records}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected cases, and print and save the results. Return 0, or 1 if a system failed or lost a row.

    A missed target appears in the results, but does not affect the exit code.
    """
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Like Ctrl-C, this ends the started processes.
    console = Console() if sys.stdout.isatty() else Console(width=120)
    chosen = [
        case
        for case in _cases(options.records, spark_merge=options.spark_merge)
        if any(part in case.label for part in options.only)
    ]
    if any(isinstance(case.system, Connector | Merging | Replay) for case in chosen):
        build_archive()
    try:
        if options.profile:
            _profile([case for case in chosen if isinstance(case.system, Connector)], console)
            return 0
        results = _measure(chosen, options.runs, console)
    except BenchmarkError as failure:
        console.print(str(failure), style="red", markup=False)
        return 1
    reached = list(targets(results))
    console.print(targets_table(reached))
    console.print(figures_table(results))
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        "runs": options.runs,
        "targets": [vars(target) for target in reached],
        "figures": [result.document() for result in results],
    }
    path = options.save or RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
    console.print(f"Saved as {path}")
    with suppress(NotMeasured):
        print_simulation(path, console)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=list(SIZES), help="sizes of the flat workload")
    parser.add_argument("--runs", type=int, default=3, help="runs of each case, interleaved")
    parser.add_argument("--quick", action="store_true", help=f"one run, {QUICK_SIZE:,} records")
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose label contains one of these")
    parser.add_argument("--save", type=Path, help="where to write the JSON instead of benchmarks/results/")
    parser.add_argument("--spark-merge", action="store_true", help="also Spark MERGE, which is downloaded: 10 minutes")
    parser.add_argument("--profile", action="store_true", help="show where the connector's time goes instead")
    options = parser.parse_args(arguments)
    if options.quick:
        options.records, options.runs = [QUICK_SIZE], 1
    return options


def _cases(sizes: Sequence[int], *, spark_merge: bool) -> Iterator[Case]:
    smallest, largest = min(sizes), max(sizes)
    nothing = Workload(FLAT, 1)
    yield Case(Command("spec"), nothing)
    yield Case(Command("check"), nothing)
    yield Case(OURS, Workload(FLAT, 1000))
    yield Case(NO_ARCHIVE, Workload(FLAT, 1000))
    for reference in (Ancestor(), Dlt(), DUCKDB_COPY):
        yield Case(reference, Workload(FLAT, smallest))
    for size in sorted(set(sizes)):
        yield Case(LIMIT, Workload(FLAT, size))
        yield Case(OURS, Workload(FLAT, size))
    of_archive = max(largest, ARCHIVED_RECORDS)
    if of_archive not in sizes:
        yield Case(OURS, Workload(FLAT, of_archive))
    yield Case(ARCHIVED, Workload(FLAT, of_archive))
    yield Case(REPLAY, Workload(FLAT, of_archive))
    yield Case(HIVE, Workload(FLAT, largest))
    yield Case(JSON_LINES, Workload(FLAT, largest))
    yield Case(OURS, Workload(OPEN, largest))
    for shape in (*FLAWED.values(), QUOTED):
        yield Case(OURS, Workload(shape, largest))
    yield Case(LIMIT, Workload(WIDE, largest // WIDE_SHARE))
    yield Case(OURS, Workload(WIDE, largest // WIDE_SHARE))
    yield Case(OURS, Workload(FLAT, 10_000, streams=100))
    for size in sorted(set(sizes)):
        yield Case(OnCluster(), Workload(FLAT, size))
    for commits in COMMITS:
        yield Case(commits, Workload(FLAT, 1000 if largest > QUICK_SIZE else 200))
    for contender in SMALL_FILES:
        yield Case(contender, Workload(FLAT, 1000 if largest > QUICK_SIZE else 200))
    for reading in READINGS:
        yield Case(reading, Workload(FLAT, 10_000 if largest > QUICK_SIZE else 1000))
    yield Case(UNREPORTED, Workload(FLAT, smallest))
    yield Case(STEADY, Workload(FLAT, 120 if largest > QUICK_SIZE else 30, streams=6))
    for system, shape in FILLING[1:]:
        yield Case(system, Workload(shape, largest))
    compared = (
        Case(system, Workload(comparison.shape, smallest))
        for comparison in PARTITIONED
        for system in comparison.systems
    )
    yield from {case.label: case for case in compared}.values()
    yield from _upserts(10 if largest > QUICK_SIZE else 1, spark_merge=spark_merge)


def _upserts(millions: int, *, spark_merge: bool) -> Iterator[Case]:
    """Yield cases with upserts into a table of `millions` million rows, and into a table of a tenth of that size.

    Both must need the same memory. Also yields upserts in many small batches, and the same upserts in one batch.
    """
    for pending in (NO_BATCH, ONE_BATCH, MANY_BATCHES):
        yield Case(pending, Workload(ORDERS, 80_000, streams=8))
    rows = millions * 1_000_000
    random = Upserts(table_rows=rows, records=rows // 10)
    systems: list[System] = [APPEND, COPY_ON_WRITE, MERGE_ON_READ, DUCKDB, *(SPARK_MERGES if spark_merge else ())]
    for system in systems:
        yield Case(system, random)
    yield Case(COPY_ON_WRITE, replace(random, table_rows=rows // 10))
    yield Case(COPY_ON_WRITE, Upserts(table_rows=rows, records=rows // 100, key="id"))
    yield Case(PYICEBERG, Upserts(table_rows=1_000_000, records=4000))
    for system in ERASURES:
        for table_rows in (1000, 1_000_000):
            yield Case(system, Upserts(table_rows=table_rows, records=2000 if table_rows > 2000 else 20))


def _measure(cases: Sequence[Case], runs: int, console: Console) -> list[Result]:
    """Run all cases once, then all cases again, and so on. Return the results of each case.

    In this order, a minute in which the machine is busy affects several cases instead of all runs of one case.
    """
    costs: list[list[Cost]] = [[] for _ in cases]
    for turn in range(1, runs + 1):
        for case, earlier in zip(cases, costs, strict=True):
            cost = _run(case)
            earlier.append(cost)
            console.print(
                f"run {turn}/{runs}  {case.label}: {cost.seconds:.2f} s (load {cost.load:.1f})", highlight=False
            )
    return [
        Result(case.system.name, case.workload, case.workload.messages().stat().st_size, tuple(measured))
        for case, measured in zip(cases, costs, strict=True)
    ]


def _run(case: Case) -> Cost:
    with case.workload.messages().open("rb") as messages:  # Read the file before, to exclude the disk's speed.
        while messages.read(1 << 24):
            pass
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        return case.system.run(case.workload, Path(folder))


def _profile(cases: Sequence[Case], console: Console) -> None:
    """Run each case once under the profiler.

    Print the CPU time by process, the functions of the driver's threads, and the log.
    """
    for case in cases:
        assert isinstance(case.system, Connector)
        with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
            folder = Path(name)
            report = folder / "profile"
            command = (sys.executable, "-m", "benchmarks.profiler", str(report))
            cost = replace(case.system, command=command).run(case.workload, folder)
            console.rule(case.label)
            shares = ", ".join(f"{process} {seconds:.1f} s" for process, seconds in cost.cpu_by_process.items())
            console.print(f"{cost.seconds:.2f} s; CPU: {shares}, moto {cost.cloud_cpu_seconds:.1f} s", highlight=False)
            console.print(report.read_text(), markup=False, highlight=False, soft_wrap=True)
            for line in (folder / "stdout").read_text().splitlines():
                message = json.loads(line)
                if message["type"] == "LOG":
                    console.print(message["log"]["message"], markup=False, highlight=False, soft_wrap=True)


def _machine() -> dict[str, object]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("pyspark", "pyarrow", "pyiceberg", "airbyte-cdk", "moto")},
    }


if __name__ == "__main__":
    sys.exit(main())
