"""`python -m benchmarks.simulation RESULTS.json`: simulate large syncs on clusters from measured costs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.simulation.costs import NotMeasured, measured
from benchmarks.simulation.model import GB, S3, Costs, Setting, simulate

SIZES = (100, 1000)
CORES = (16, 32, 64, 128, 256)
RECORD_BYTES = 430


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate every size on every cluster, and print the results. Return 0, or 1 if RESULTS.json lacks a figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    parser.add_argument("results", type=Path, help="a file that `make bench` saved")
    console = Console(width=110)
    try:
        print_simulation(parser.parse_args(arguments).results, console)
    except NotMeasured as missing:
        console.print(f"The results have no figure of {missing}: run `make bench`.", style="red", markup=False)
        return 1
    return 0


def print_simulation(results: Path, console: Console) -> None:
    """Print the costs of this machine according to `results`, and every simulated sync. Raises NotMeasured."""
    costs = measured(results)
    console.print(_costs_table(costs))
    console.print(_outcomes_table(costs))


def _costs_table(costs: Costs) -> Table:
    table = Table("cost", "seconds", title="Measured (CPU seconds per GB of messages, then seconds of single steps)")
    for field in fields(costs):
        table.add_row(field.name, f"{getattr(costs, field.name):.4g}")
    ceiling = 1 / costs.read
    table.add_row(
        "ceiling of one stdin", f"{ceiling:.2f} GB/s, {ceiling * GB / RECORD_BYTES / 1e6:.1f} million records/s"
    )
    return table


def _outcomes_table(costs: Costs) -> Table:
    table = Table(title="Simulated")
    for heading in ("GB", "cores", "minutes", "MB/s", "share of the ceiling", "executors busy", "files", "MB each"):
        table.add_column(heading, justify="right")
    for gigabytes in SIZES:
        for cores in CORES:
            outcome = simulate(Setting(gigabytes, cores), costs, S3())
            speed = gigabytes / outcome.seconds
            size = gigabytes * GB * outcome.file_share / outcome.tasks
            table.add_row(
                f"{gigabytes:,}",
                str(cores),
                f"{outcome.seconds / 60:.1f}",
                f"{speed * 1000:.0f}",
                f"{speed * costs.read:.2f}",
                f"{outcome.encoding:.0%}",
                f"{outcome.tasks:,}",
                f"{size / 1e6:.0f}",
            )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
