"""What it costs to make one file of many small ones."""

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
    """As many small files as the workload has records, made one by one thread: benchmarks/maintenance/compaction.py.

    Start-up is left out of its seconds and CPU seconds, and is in its peak memory.
    """

    name: str

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Write the files, and have them made one."""
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
