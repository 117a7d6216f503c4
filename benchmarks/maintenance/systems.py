"""Measure the cost of compacting many small files into one."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cloud import cloud
from benchmarks.maintenance.compaction import CONTENDERS, ROWS, fill
from benchmarks.measure import Cost
from benchmarks.systems import BenchmarkError, measured
from benchmarks.workload import Workload


@dataclass(frozen=True)
class SmallFiles:
    """The compaction of as many small files as the workload has records, by one thread.

    The seconds and CPU seconds exclude the start of the process, but the peak memory includes it. See
    benchmarks/maintenance/compaction.py.
    """

    name: str

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Write the small files, and compact them."""
        with cloud() as lake:
            fill(workload.records, lake, folder)
            before = lake.cpu_seconds()
            command = [sys.executable, "-m", "benchmarks.maintenance.compaction", self.name, lake.url, str(folder)]
            cost = measured(command, None, folder, {})
            cloud_cpu = lake.cpu_seconds() - before
        output = json.loads((folder / "stdout").read_text())
        if output["rows"] != workload.records * ROWS:
            raise BenchmarkError(f"{self.name}: {output['rows']} rows of {workload.records * ROWS}")
        return replace(
            cost,
            seconds=output["seconds"],
            cpu_seconds=output["cpu_seconds"],
            cloud_cpu_seconds=cloud_cpu,
            file_bytes=(output["bytes"],),
        )


COMPACTION, COMPACTION_SORTED, PYARROW, DUCKDB = SMALL_FILES = tuple(map(SmallFiles, CONTENDERS))
