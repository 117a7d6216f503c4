"""Compare the results with the project's targets, and print them as tables."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median

from rich.table import Table

from benchmarks.cluster import OnCluster
from benchmarks.commits.systems import COMMITS, STEADY, STEADY_WITHIN
from benchmarks.dedup.batches import MANY_BATCHES, NO_BATCH, ONE_BATCH, STREAMS
from benchmarks.dedup.systems import APPEND, COPY_ON_WRITE, DUCKDB, MERGE_ON_READ, WRITTEN
from benchmarks.dedup.workload import Upserts
from benchmarks.maintenance.systems import COMPACTION, PYARROW
from benchmarks.measure import Cost
from benchmarks.reading import READINGS, WITHIN
from benchmarks.systems import ARCHIVED, FILLING, PARTITIONED, REPLAY, UNREPORTED
from benchmarks.workload import FLAWED, QUOTED, WIDE_SHARE, Workload

GIB = 1 << 30
TIMES_ROWS = 10  # The ratio of the sizes of two tables whose merges must need the same memory.
TARGET_BYTES = 128 << 20  # The default of target_file_size_mb.
ANCESTOR_MEASURED = 1_800  # The records/s of the ancestor itself, with a state after every 10,000 records.


@dataclass(frozen=True)
class Result:
    """All runs of one system on one workload. Times are medians of the runs, and memory is the maximum."""

    system: str
    workload: Workload
    message_bytes: int
    costs: tuple[Cost, ...]

    @property
    def seconds(self) -> float:
        """The median wall time in seconds."""
        return median(cost.seconds for cost in self.costs)

    @property
    def records_per_second(self) -> float:
        """The number of records in the workload per second of median wall time."""
        return self.workload.records / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """The number of bytes of messages per second of median wall time."""
        return self.message_bytes / self.seconds

    @property
    def cpu_seconds(self) -> float:
        """The median CPU time of all the system's processes, in seconds."""
        return median(cost.cpu_seconds for cost in self.costs)

    @property
    def cloud_cpu_seconds(self) -> float:
        """The median CPU time of the moto server, which shares the cores with the system, in seconds."""
        return median(cost.cloud_cpu_seconds for cost in self.costs)

    @property
    def peak_bytes(self) -> int:
        """The maximum, over all runs, of the memory that all the system's processes use together, in bytes."""
        return max(cost.peak_bytes for cost in self.costs)

    @property
    def near_target(self) -> float:
        """The minimum, over all runs, of the fraction of bytes that is in files near the default target size.

        A file is near the target size if its size is between half and one and a half times the target size.
        """
        shares = []
        for cost in self.costs:
            near = (size for size in cost.file_bytes if TARGET_BYTES / 2 <= size <= TARGET_BYTES * 3 / 2)
            shares.append(sum(near) / (sum(cost.file_bytes) or 1))
        return min(shares)

    def growth(self, metric: str) -> float:
        """Return the median, over all runs, of one ratio in `Cost.growth`."""
        return median(cost.growth[metric] for cost in self.costs)

    @property
    def files(self) -> int:
        """The maximum, over all runs, of the number of data files."""
        return max(len(cost.file_bytes) for cost in self.costs)

    def document(self) -> dict[str, object]:
        """Return all figures as an object for JSON."""
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
    """A target, and the value that the benchmark reached.

    `met` states whether this value meets the target. It is None if the benchmark did not measure the necessary systems.
    """

    title: str
    wanted: str
    reached: str
    met: bool | None


def targets(results: Iterable[Result]) -> Iterator[Target]:
    """Yield the project's targets, most important first."""
    results_by_case = {(result.system, result.workload.name, result.workload.records): result for result in results}

    def result_of(system: str, workload: str, records: int) -> Result | None:
        return results_by_case.get((system, workload, records))

    def ratio(result: Result | None, reference: Result | None, figure: Callable[[Result], float]) -> float | None:
        return None if result is None or reference is None else figure(result) / figure(reference)

    def speed(result: Result) -> float:
        return result.records_per_second

    def seconds(result: Result | None) -> float | None:
        return None if result is None else result.seconds

    ours, five_million, one_million = "ours", 5_000_000, 1_000_000
    for records, share in ((five_million, 0.80), (one_million, 0.38)):
        value = ratio(result_of(ours, "flat", records), result_of("limit", "flat", records), speed)
        yield _target(f"{records:,} flat records: share of the limit's records/s", value, ">=", share)
    value = ratio(
        result_of(ours, "flat", five_million),
        result_of("limit", "flat", five_million),
        lambda result: result.cpu_seconds,
    )
    yield _target("5,000,000 flat records: times the limit's CPU seconds", value, "<=", 0.9)
    value = ratio(result_of(ours, "flat", five_million), result_of("ancestor's way", "flat", one_million), speed)
    yield _target("5,000,000 flat records: times the ancestor's way", value, ">=", 15)
    for product in ("dlt", "DuckDB COPY"):
        value = ratio(
            result_of(ours, "flat", one_million),
            result_of(product, "flat", one_million),
            lambda result: result.cpu_seconds,
        )
        yield _target(f"1,000,000 flat records: times the CPU seconds of {product}", value, "<=", 1)
    largest = result_of(ours, "flat", five_million)
    value = None if largest is None else largest.records_per_second / ANCESTOR_MEASURED
    yield _target("5,000,000 flat records: times the ancestor itself (1,800 records/s)", value, ">=", 100)
    yield _target("100 streams of 100 records: seconds", seconds(result_of(ours, "100 streams", 10_000)), "<", 45)
    wide = five_million // WIDE_SHARE
    value = ratio(
        result_of(ours, "wide", wide), result_of("limit", "wide", wide), lambda result: result.bytes_per_second
    )
    yield _target("300 columns: share of the limit's bytes/s", value, ">=", 0.40)
    for label, result, share in (
        ("open-JSON columns", result_of(ours, "open", five_million), 0.50),
        ("JSON Lines output", result_of("ours, JSON Lines", "flat", five_million), 0.50),
        ("one bad record in 1,000", result_of(ours, FLAWED[1000].name, five_million), 0.70),
        ("one bad record in 10", result_of(ours, FLAWED[10].name, five_million), 0.30),
        ("numbers as strings", result_of(ours, QUOTED.name, five_million), 0.50),
    ):
        yield _target(f"5,000,000 {label}: share of the flat Parquet speed", ratio(result, largest, speed), ">=", share)
    on_cluster = result_of(OnCluster().name, "flat", five_million)
    yield _target(
        "5,000,000 flat records, 2 executors: share of the local speed", ratio(on_cluster, largest, speed), ">=", 0.8
    )
    for records in sorted(
        {records for system, _, records in results_by_case if system in (ARCHIVED.name, REPLAY.name)}
    ):
        archived, plain = result_of(ARCHIVED.name, "flat", records), result_of(ours, "flat", records)
        yield _target(f"{records:,} archived: share of the speed without", ratio(archived, plain, speed), ">=", 0.9)
        value = ratio(archived, plain, lambda result: result.cpu_seconds)
        yield _target(f"{records:,} archived: times the CPU seconds without", value, "<=", 1.2)
        replay = result_of(REPLAY.name, "flat", records)
        value = None if replay is None else 1 / replay.growth("seconds")
        yield _target(f"{records:,} replayed: share of the speed of the sync that wrote them", value, ">=", 0.9)
    for comparison in PARTITIONED:
        for records in {records for _, shape, records in results_by_case if shape == comparison.shape.name}:
            plain, partitioned = (
                result_of(system.name, comparison.shape.name, records) for system in comparison.systems
            )
            label = f"{records:,} {comparison.shape.name}, {comparison.system.name}: share of the speed without"
            yield _target(label, ratio(partitioned, plain, speed), ">=", comparison.share)
    for system, shape in FILLING:
        filled = result_of(system.name, shape.name, five_million)
        value = None if filled is None else filled.near_target
        yield _target(
            f"5,000,000 {shape.name}, {system.name}: share of bytes in files near the target", value, ">=", 0.9
        )
    value = ratio(
        result_of(ours, "flat", one_million),
        result_of(UNREPORTED.name, "flat", one_million),
        lambda result: result.cpu_seconds,
    )
    yield _target("1,000,000 flat records: times the CPU seconds without a report", value, "<=", 1.01)
    yield from _reading(results_by_case)
    yield from _growing(results_by_case)
    yield from _merging_batches(results_by_case)
    yield from _upserting(results_by_case)
    for number in sorted({number for system, _, number in results_by_case if system == COMPACTION.name}):
        compaction, reference = result_of(COMPACTION.name, "flat", number), result_of(PYARROW.name, "flat", number)
        value = ratio(compaction, reference, lambda result: result.cpu_seconds)
        yield _target(f"{number:,} small files compacted: times pyarrow's CPU seconds, from S3", value, "<=", 1.2)
    peaks = [result.peak_bytes / GIB for name, result in _with_prefix(results_by_case, ours)]
    yield _target("peak memory of all processes: GiB", max(peaks, default=None), "<", 2)
    value = ratio(
        result_of(ours, "flat", five_million), result_of(ours, "flat", one_million), lambda result: result.peak_bytes
    )
    yield _target("peak memory: 5,000,000 ÷ 1,000,000 records", value, "<=", 1.1)
    yield _target("spec: seconds", seconds(result_of("spec", "flat", 1)), "<", 1.5)
    yield _target("check: seconds", seconds(result_of("check", "flat", 1)), "<", 4)
    yield _target(
        "1,000 records, no JVM archive: seconds", seconds(result_of("ours, no archive", "flat", 1000)), "<", 12
    )
    yield _target("1,000 records, JVM archive: seconds", seconds(result_of(ours, "flat", 1000)), "<", 7)


def _reading(results: Mapping[tuple[str, str, int], Result]) -> Iterator[Target]:
    names = {reading.name for reading in READINGS}
    for (system, _, number), result in results.items():
        if system in names:
            label = f"{number:,} reports read again, {system.removeprefix('ours, ')}"
            yield _target(f"{label}: seconds", result.seconds, "<", WITHIN["seconds"])
            yield _target(f"{label}: MiB", result.peak_bytes / (1 << 20), "<", WITHIN["MiB"])


def _growing(results: Mapping[tuple[str, str, int], Result]) -> Iterator[Target]:
    for commits in COMMITS:
        for (system, _, number), result in results.items():
            if system == commits.name:
                for metric in ("seconds", "cpu_seconds"):
                    title = f"{number:,}th commit ÷ 10th, {commits.table_type.capitalize()} table: {metric}"
                    yield _target(title, result.growth(metric), "<=", 1.5)
    for (system, _, number), result in results.items():
        if system == STEADY.name:
            for metric, most in STEADY_WITHIN.items():
                yield _target(f"{number} s of commits, end ÷ a third: {metric}", result.growth(metric), "<=", most)


def _merging_batches(results: Mapping[tuple[str, str, int], Result]) -> Iterator[Target]:
    for (system, name, records), many in results.items():
        no_batch, one_batch = (results.get((merges.name, name, records)) for merges in (NO_BATCH, ONE_BATCH))
        if system != MANY_BATCHES.name or no_batch is None or one_batch is None:
            continue
        batches = f"{MANY_BATCHES.batches * STREAMS} batches of {STREAMS} streams"
        ratio = (many.cpu_seconds - no_batch.cpu_seconds) / (one_batch.cpu_seconds - no_batch.cpu_seconds)
        yield _target(f"{batches}: the merges' CPU seconds ÷ those of one batch each", ratio, "<=", 1.2)
        yield _target(f"{batches}: seconds of the merges", many.seconds - no_batch.seconds, "<=", 10)


def _upserting(results: Mapping[tuple[str, str, int], Result]) -> Iterator[Target]:
    for (system, _, records), result in results.items():
        workload = result.workload
        if system not in (COPY_ON_WRITE.name, MERGE_ON_READ.name) or not isinstance(workload, Upserts):
            continue
        label = f"{records:,} {workload.name}, {system.removeprefix('ours, ')}"
        if workload.key == "id":
            yield _target(f"{label}: {WRITTEN}", result.growth(WRITTEN), "<=", 1.2)
            continue
        tenth = results.get((system, replace(workload, table_rows=workload.table_rows // TIMES_ROWS).name, records))
        if tenth is not None:
            ratio = result.peak_bytes / tenth.peak_bytes
            yield _target(f"{label}: peak memory ÷ that of a tenth of the table", ratio, "<=", 1.1)
        if (appended := results.get((APPEND.name, workload.name, records))) is not None:
            seconds, cpu_seconds = result.seconds - appended.seconds, result.cpu_seconds - appended.cpu_seconds
            most = 35 if system == COPY_ON_WRITE.name else 8
            yield _target(f"{label}: seconds of the merge", seconds, "<=", most)
            mode = system.removeprefix("ours, ")
            for reference_system, times in ((DUCKDB.name, 1.5), (f"Spark MERGE, {mode}", 0.2)):
                if (reference := results.get((reference_system, workload.name, records))) is not None:
                    ratio = cpu_seconds / reference.cpu_seconds
                    yield _target(f"{label}: the merge's CPU seconds ÷ {reference_system}", ratio, "<=", times)


def _with_prefix(results: Mapping[tuple[str, str, int], Result], prefix: str) -> Iterator[tuple[str, Result]]:
    return ((key[0], result) for key, result in results.items() if key[0].startswith(prefix))


def _target(title: str, value: float | None, relation: str, bound: float) -> Target:
    compare = {">=": operator.ge, "<": operator.lt, "<=": operator.le}[relation]
    wanted = f"{ {'>=': '≥', '<': '<', '<=': '≤'}[relation] } {bound:g}"
    if value is None:
        return Target(title, wanted, "not measured", None)
    return Target(title, wanted, f"{value:.2f}", compare(value, bound))


def targets_table(reached: Iterable[Target]) -> Table:
    """Return a table with each target and the value that the benchmark reached."""
    table = Table(title="Targets", title_justify="left")
    table.add_column("target")
    for heading in ("wanted", "reached", ""):
        table.add_column(heading, justify="right")
    marks = {True: "[green]ok", False: "[red]missed", None: "[dim]–"}
    for target in reached:
        table.add_row(target.title, target.wanted, target.reached, marks[target.met])
    return table


def figures_table(results: Iterable[Result]) -> Table:
    """Return a table with the absolute figures: the medians of times, and the maxima of memory and files."""
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
