"""What the figures mean: the targets beside what was reached, then the absolute figures."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median

from rich.table import Table

from benchmarks.cluster import OnCluster
from benchmarks.commits.systems import COMMITS, STEADY, STEADY_WITHIN
from benchmarks.dedup.batches import MANY, NONE, ONE, STREAMS
from benchmarks.dedup.systems import APPEND, COPY_ON_WRITE, DUCKDB, MERGE_ON_READ, WRITTEN
from benchmarks.dedup.workload import Upserts
from benchmarks.maintenance.systems import COMPACTION, PYARROW
from benchmarks.measure import Cost
from benchmarks.reading import READINGS, WITHIN
from benchmarks.systems import ARCHIVED, FILLING, PARTITIONED, REPLAY, UNREPORTED
from benchmarks.workload import FLAWED, QUOTED, WIDE_SHARE, Workload

GIB = 1 << 30
TIMES_ROWS = 10  # by so much the two tables differ whose merges must take the same memory
TARGET_BYTES = 128 << 20  # the default of target_file_size_mb
ANCESTOR_MEASURED = 1_800  # records/s of the ancestor itself, with its states every 10,000 records


@dataclass(frozen=True)
class Result:
    """All runs of one system on one workload. Times are medians of the runs, memory is the worst of them."""

    system: str
    workload: Workload
    message_bytes: int
    costs: tuple[Cost, ...]

    @property
    def seconds(self) -> float:
        """Median wall time."""
        return median(cost.seconds for cost in self.costs)

    @property
    def records_per_second(self) -> float:
        """Records sent ÷ median wall time."""
        return self.workload.records / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """Bytes of messages sent ÷ median wall time."""
        return self.message_bytes / self.seconds

    @property
    def cpu_seconds(self) -> float:
        """Median CPU time of all the system's processes."""
        return median(cost.cpu_seconds for cost in self.costs)

    @property
    def cloud_cpu_seconds(self) -> float:
        """Median CPU time the moto server took from the same cores."""
        return median(cost.cloud_cpu_seconds for cost in self.costs)

    @property
    def peak_bytes(self) -> int:
        """Most memory of all the system's processes together."""
        return max(cost.peak_bytes for cost in self.costs)

    @property
    def near_target(self) -> float:
        """Least share, of all runs, of the bytes that lie in files within half of the default target size."""
        shares = []
        for cost in self.costs:
            near = (size for size in cost.file_bytes if TARGET_BYTES / 2 <= size <= TARGET_BYTES * 3 / 2)
            shares.append(sum(near) / (sum(cost.file_bytes) or 1))
        return min(shares)

    def growth(self, what: str) -> float:
        """Median of a ratio of `Cost.growth`."""
        return median(cost.growth[what] for cost in self.costs)

    @property
    def files(self) -> int:
        """Most data files of any run."""
        return max(len(cost.file_bytes) for cost in self.costs)

    def document(self) -> dict[str, object]:
        """Everything, for JSON."""
        return {
            "system": self.system,
            "workload": self.workload.name,
            "records": self.workload.records,
            "message_bytes": self.message_bytes,
            "median_seconds": self.seconds,
            "records_per_second": self.records_per_second,
            "megabytes_per_second": self.bytes_per_second / 1e6,
            "median_cpu_seconds": self.cpu_seconds,
            "median_cloud_cpu_seconds": self.cloud_cpu_seconds,
            "peak_bytes": self.peak_bytes,
            "runs": [asdict(cost) for cost in self.costs],
        }


@dataclass(frozen=True)
class Target:
    """One figure to reach; `value` is None when what it needs was not measured."""

    what: str
    wanted: str
    reached: str
    met: bool | None


def targets(results: Iterable[Result]) -> Iterator[Target]:
    """The project's targets, in the order of their importance."""
    found = {(result.system, result.workload.name, result.workload.records): result for result in results}

    def only(system: str, workload: str, records: int) -> Result | None:
        return found.get((system, workload, records))

    def ratio(mine: Result | None, other: Result | None, figure: Callable[[Result], float]) -> float | None:
        return None if mine is None or other is None else figure(mine) / figure(other)

    def speed(result: Result) -> float:
        return result.records_per_second

    def seconds(result: Result | None) -> float | None:
        return None if result is None else result.seconds

    ours, five, one = "ours", 5_000_000, 1_000_000
    for records, share in ((five, 0.80), (one, 0.38)):
        value = ratio(only(ours, "flat", records), only("limit", "flat", records), speed)
        yield _target(f"{records:,} flat records: share of the limit's records/s", value, ">=", share)
    value = ratio(only(ours, "flat", five), only("limit", "flat", five), lambda result: result.cpu_seconds)
    yield _target("5,000,000 flat records: times the limit's CPU seconds", value, "<=", 0.9)
    value = ratio(only(ours, "flat", five), only("ancestor's way", "flat", one), speed)
    yield _target("5,000,000 flat records: times the ancestor's way", value, ">=", 15)
    for reference in ("dlt", "DuckDB COPY"):
        value = ratio(only(ours, "flat", one), only(reference, "flat", one), lambda result: result.cpu_seconds)
        yield _target(f"1,000,000 flat records: times the CPU seconds of {reference}", value, "<=", 1)
    largest = only(ours, "flat", five)
    value = None if largest is None else largest.records_per_second / ANCESTOR_MEASURED
    yield _target("5,000,000 flat records: times the ancestor itself (1,800 records/s)", value, ">=", 100)
    yield _target("100 streams of 100 records: seconds", seconds(only(ours, "100 streams", 10_000)), "<", 45)
    wide = five // WIDE_SHARE
    value = ratio(only(ours, "wide", wide), only("limit", "wide", wide), lambda result: result.bytes_per_second)
    yield _target("300 columns: share of the limit's bytes/s", value, ">=", 0.40)
    for what, other, share in (
        ("open-JSON columns", only(ours, "open", five), 0.50),
        ("JSON lines output", only("ours, JSON lines", "flat", five), 0.50),
        ("one bad record in 1,000", only(ours, FLAWED[1000].name, five), 0.70),
        ("one bad record in 10", only(ours, FLAWED[10].name, five), 0.30),
        ("numbers as strings", only(ours, QUOTED.name, five), 0.50),
    ):
        yield _target(f"5,000,000 {what}: share of the flat Parquet speed", ratio(other, largest, speed), ">=", share)
    on_cluster = only(OnCluster().name, "flat", five)
    yield _target(
        "5,000,000 flat records, 2 executors: share of the local speed", ratio(on_cluster, largest, speed), ">=", 0.8
    )
    for records in sorted({records for system, _, records in found if system in (ARCHIVED.name, REPLAY.name)}):
        archived, plain = only(ARCHIVED.name, "flat", records), only(ours, "flat", records)
        yield _target(f"{records:,} archived: share of the speed without", ratio(archived, plain, speed), ">=", 0.85)
        value = ratio(archived, plain, lambda result: result.cpu_seconds)
        yield _target(f"{records:,} archived: times the CPU seconds without", value, "<=", 1.25)
        replay = only(REPLAY.name, "flat", records)
        value = None if replay is None else 1 / replay.growth("seconds")
        yield _target(f"{records:,} replayed: share of the speed of the sync that wrote them", value, ">=", 0.9)
    for each in PARTITIONED:
        for records in {records for _, shape, records in found if shape == each.shape.name}:
            plain, partitioned = (only(system.name, each.shape.name, records) for system in each.systems)
            what = f"{records:,} {each.shape.name}, {each.system.name}: share of the speed without"
            yield _target(what, ratio(partitioned, plain, speed), ">=", each.share)
    for system, shape in FILLING:
        filled = only(system.name, shape.name, five)
        value = None if filled is None else filled.near_target
        yield _target(
            f"5,000,000 {shape.name}, {system.name}: share of bytes in files near the target", value, ">=", 0.9
        )
    value = ratio(only(ours, "flat", one), only(UNREPORTED.name, "flat", one), lambda result: result.cpu_seconds)
    yield _target("1,000,000 flat records: times the CPU seconds without a report", value, "<=", 1.01)
    yield from _reading(found)
    yield from _growing(found)
    yield from _merging_batches(found)
    yield from _upserting(found)
    for number in sorted({number for system, _, number in found if system == COMPACTION.name}):
        compaction, others = only(COMPACTION.name, "flat", number), only(PYARROW.name, "flat", number)
        value = ratio(compaction, others, lambda result: result.cpu_seconds)
        yield _target(f"{number:,} small files compacted: times pyarrow's CPU seconds, from S3", value, "<=", 1.2)
    peaks = [result.peak_bytes / GIB for name, result in _of(found, ours)]
    yield _target("peak memory of all processes: GiB", max(peaks, default=None), "<", 2)
    value = ratio(only(ours, "flat", five), only(ours, "flat", one), lambda result: result.peak_bytes)
    yield _target("peak memory: 5,000,000 ÷ 1,000,000 records", value, "<=", 1.1)
    yield _target("spec: seconds", seconds(only("spec", "flat", 1)), "<", 1.5)
    yield _target("check: seconds", seconds(only("check", "flat", 1)), "<", 4)
    yield _target("1,000 records, no JVM archive: seconds", seconds(only("ours, no archive", "flat", 1000)), "<", 12)
    yield _target("1,000 records, JVM archive: seconds", seconds(only(ours, "flat", 1000)), "<", 7)


def _reading(found: Mapping[tuple[str, str, int], Result]) -> Iterator[Target]:
    names = {each.name for each in READINGS}
    for (system, _, number), result in found.items():
        if system in names:
            what = f"{number:,} reports read again, {system.removeprefix('ours, ')}"
            yield _target(f"{what}: seconds", result.seconds, "<", WITHIN["seconds"])
            yield _target(f"{what}: MiB", result.peak_bytes / (1 << 20), "<", WITHIN["MiB"])


def _growing(found: Mapping[tuple[str, str, int], Result]) -> Iterator[Target]:
    for commits in COMMITS:
        for (system, _, number), result in found.items():
            if system == commits.name:
                for what in ("seconds", "cpu_seconds"):
                    title = f"{number:,}th commit ÷ 10th, {commits.table_type.capitalize()} table: {what}"
                    yield _target(title, result.growth(what), "<=", 1.5)
    for (system, _, number), result in found.items():
        if system == STEADY.name:
            for what, most in STEADY_WITHIN.items():
                yield _target(f"{number} s of commits, end ÷ a third: {what}", result.growth(what), "<=", most)


def _merging_batches(found: Mapping[tuple[str, str, int], Result]) -> Iterator[Target]:
    for (system, name, records), many in found.items():
        none, one = (found.get((each.name, name, records)) for each in (NONE, ONE))
        if system != MANY.name or none is None or one is None:
            continue
        batches = f"{MANY.batches * STREAMS} batches of {STREAMS} streams"
        ratio = (many.cpu_seconds - none.cpu_seconds) / (one.cpu_seconds - none.cpu_seconds)
        yield _target(f"{batches}: the merges' CPU seconds ÷ those of one batch each", ratio, "<=", 1.2)
        yield _target(f"{batches}: seconds of the merges", many.seconds - none.seconds, "<=", 10)


def _upserting(found: Mapping[tuple[str, str, int], Result]) -> Iterator[Target]:
    for (system, _, records), result in found.items():
        workload = result.workload
        if system not in (COPY_ON_WRITE.name, MERGE_ON_READ.name) or not isinstance(workload, Upserts):
            continue
        what = f"{records:,} {workload.name}, {system.removeprefix('ours, ')}"
        if workload.key == "id":
            yield _target(f"{what}: {WRITTEN}", result.growth(WRITTEN), "<=", 1.2)
            continue
        tenth = found.get((system, replace(workload, table_rows=workload.table_rows // TIMES_ROWS).name, records))
        if tenth is not None:
            ratio = result.peak_bytes / tenth.peak_bytes
            yield _target(f"{what}: peak memory ÷ that of a tenth of the table", ratio, "<=", 1.1)
        if (appended := found.get((APPEND.name, workload.name, records))) is not None:
            seconds, cpu_seconds = result.seconds - appended.seconds, result.cpu_seconds - appended.cpu_seconds
            most = 35 if system == COPY_ON_WRITE.name else 8
            yield _target(f"{what}: seconds of the merge", seconds, "<=", most)
            mode = system.removeprefix("ours, ")
            for other, times in ((DUCKDB.name, 1.5), (f"Spark MERGE, {mode}", 0.2)):
                if (reference := found.get((other, workload.name, records))) is not None:
                    ratio = cpu_seconds / reference.cpu_seconds
                    yield _target(f"{what}: the merge's CPU seconds ÷ {other}", ratio, "<=", times)


def _of(found: Mapping[tuple[str, str, int], Result], prefix: str) -> Iterator[tuple[str, Result]]:
    return ((key[0], result) for key, result in found.items() if key[0].startswith(prefix))


def _target(what: str, value: float | None, relation: str, bound: float) -> Target:
    compare = {">=": operator.ge, "<": operator.lt, "<=": operator.le}[relation]
    wanted = f"{ {'>=': '≥', '<': '<', '<=': '≤'}[relation] } {bound:g}"
    if value is None:
        return Target(what, wanted, "not measured", None)
    return Target(what, wanted, f"{value:.2f}", compare(value, bound))


def targets_table(reached: Iterable[Target]) -> Table:
    """Targets beside what was reached."""
    table = Table(title="Targets", title_justify="left")
    table.add_column("target")
    for heading in ("wanted", "reached", ""):
        table.add_column(heading, justify="right")
    marks = {True: "[green]ok", False: "[red]missed", None: "[dim]–"}
    for target in reached:
        table.add_row(target.what, target.wanted, target.reached, marks[target.met])
    return table


def figures_table(results: Iterable[Result]) -> Table:
    """The absolute figures: medians, and the worst peak."""
    table = Table(title="Figures (medians; peak: worst run)", title_justify="left")
    table.add_column("system")
    table.add_column("workload")
    for heading in ("records", "s", "records/s", "MB/s", "CPU s", "moto CPU s", "peak MiB", "files"):
        table.add_column(heading, justify="right")
    for result in results:
        answers = result.system in ("spec", "check")
        table.add_row(
            result.system,
            "" if answers else result.workload.name,
            "" if answers else f"{result.workload.records:,}",
            f"{result.seconds:.2f}",
            "" if answers else f"{result.records_per_second:,.0f}",
            "" if answers else f"{result.bytes_per_second / 1e6:.1f}",
            f"{result.cpu_seconds:.1f}",
            f"{result.cloud_cpu_seconds:.1f}",
            f"{result.peak_bytes / (1 << 20):,.0f}" if result.peak_bytes else "",
            f"{result.files:,}" if result.files else "",
        )
    return table
