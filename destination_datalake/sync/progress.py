"""Report the progress of a running sync: as LOG messages, and as a live display if stderr is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from destination_datalake.errors import counted
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.spark.backend import JobsProgress

if TYPE_CHECKING:
    from rich.table import Table

    from destination_datalake.protocol.stdout import Stdout

LOG_EVERY_SECONDS = 5.0
"""The interval before the first progress log, in seconds. The interval doubles after each log, up to a minute."""

_MAX_SECONDS = 60.0

_SPARK_SECONDS = 2.0
"""Maximum time, in seconds, that the end of a sync waits for task counts from Spark. A hanging Spark never responds."""

BUSIEST = 10
"""Maximum number of streams that a progress log names."""


class ActiveStages:
    """Tracks which stages of a sync are active on any thread, and the time spent in each. Thread-safe."""

    STAGES = ("reading", "encoding", "committing", "merging", "publishing")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu_seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def active(self, stage: str) -> Iterator[None]:
        """Mark `stage` as active on this thread for the duration of the `with` block."""
        with self._lock:
            if not self._threads[stage]:
                self._since[stage] = self._clock()
            self._threads[stage] += 1
        cpu = time.thread_time()
        try:
            yield
        finally:
            with self._lock:
                self._cpu_seconds[stage] += time.thread_time() - cpu
                self._threads[stage] -= 1
                if not self._threads[stage]:
                    self._seconds[stage] += self._clock() - self._since.pop(stage)

    def spent(self) -> dict[str, tuple[float, float]]:
        """Return two times in seconds for each stage that was ever active.

        The first is the wall-clock time during which at least one thread was in the stage. The second is the total CPU
        time of all threads that have been in the stage, without threads that are still in the stage.
        """
        with self._lock:
            now = self._clock()
            running = {stage: now - since for stage, since in self._since.items()}
            return {
                stage: (self._seconds.get(stage, 0.0) + running.get(stage, 0.0), self._cpu_seconds.get(stage, 0.0))
                for stage in self.STAGES
                if stage in self._seconds or stage in running
            }

    def now(self) -> tuple[str, ...]:
        """Return the names of the active stages, in the order in which records pass through them."""
        return tuple(stage for stage in self.STAGES if self._threads[stage])


@dataclass(slots=True)
class StreamProgress:
    """The counts and times of one stream since the start of the sync. Counts are named as in the sync's report."""

    stream: StreamId
    rows_received: int = 0
    bytes_received: int = 0
    committed: int = 0
    row_count: int = 0
    """The number of rows written. This number is less than `committed` if batches contain empty lines. Such a line
    replaces an erased record."""
    sizes: array[int] = field(default_factory=lambda: array("q"), compare=False)
    """The size in bytes of each file written."""
    partitions: float = 0.0
    """The average number of partitions per task, in the batch with the highest average."""
    counts: RejectCounts = field(default_factory=RejectCounts)
    states_released: int = 0
    """The number of emitted states of this stream, without global states, which count only for the whole sync."""
    began: float | None = None
    """The time, by `time.monotonic`, at which the sync read the first record. None before the first record."""
    seconds: float = 0.0
    """The time in seconds from the first record to the latest commit."""

    @property
    def rows_rejected(self) -> int:
        """The number of records that were rejected as a whole."""
        return self.counts.refused

    @property
    def rows_skipped(self) -> int:
        """The number of received records that may be missing in the table, because the stream failed."""
        return max(0, self.rows_received - self.row_count - self.rows_rejected)

    @property
    def values_rejected(self) -> int:
        """The number of rejected values in records that were written."""
        return self.counts.values


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of the counts of a running sync."""

    streams: tuple[StreamProgress, ...]
    seconds: float
    buffered_bytes: int
    states_released: int
    states_held: int
    stages: tuple[str, ...] = ()
    encoding_bytes: int = 0
    """The size in bytes of the record lines that Spark is encoding."""
    tasks: JobsProgress = field(default_factory=JobsProgress)


class Reporter:
    """Logs what has changed in a sync at growing intervals. On a terminal, also shows a live display on stderr."""

    def __init__(
        self,
        out: Stdout,
        progress: Callable[[], Progress],
        tasks: Callable[[], JobsProgress] = JobsProgress,
        every_seconds: float = LOG_EVERY_SECONDS,
    ) -> None:
        """Create a reporter. Its thread calls `progress` and `tasks`, so `tasks` may block."""
        self._out = out
        self._seconds = every_seconds
        self._logged: Progress | None = None
        self._progress = progress
        self._tasks = tasks
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def __enter__(self) -> Reporter:
        """Start the reporter's thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the reporter's thread. Waits at most 2 seconds, because Spark may hang."""
        self._ended.set()
        self._thread.join(_SPARK_SECONDS)

    def _run(self) -> None:
        if sys.stderr.isatty():
            self._show_live()
            return
        while not self._ended.wait(self._seconds):
            self._log(self._with_tasks())

    def _log(self, progress: Progress) -> None:
        """Log the changes since the last log, if anything other than the elapsed time has changed."""
        lines = news(progress, self._logged)
        for line in lines:
            self._out.log("INFO", line)
        if lines:
            self._logged = progress
            self._seconds = max(self._seconds, min(2 * self._seconds, _MAX_SECONDS))

    def _with_tasks(self) -> Progress:
        return replace(self._progress(), tasks=self._tasks())

    def _show_live(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        due = time.monotonic() + self._seconds
        with Live(progress_table(self._progress()), console=console, refresh_per_second=4) as live:
            while not self._ended.wait(0.25):
                progress = self._with_tasks()
                live.update(progress_table(progress))
                if time.monotonic() >= due:
                    self._log(progress)
                    due = time.monotonic() + self._seconds
            # Without task counts, because Spark may hang at the end of a sync.
            live.update(progress_table(self._progress()))


def news(progress: Progress, logged: Progress | None) -> list[str]:
    """Return log lines about the sync, and about streams that have changed since the snapshot `logged`.

    The list is empty if only the elapsed time has changed.
    """
    if logged is None:
        return list(progress_lines(progress))
    if replace(progress, seconds=logged.seconds) == logged:
        return []
    before = {stream.stream: stream for stream in logged.streams}
    changed = tuple(stream for stream in progress.streams if before.get(stream.stream) != stream)
    return list(progress_lines(progress, changed))


def progress_lines(progress: Progress, streams: Sequence[StreamProgress] | None = None) -> Iterable[str]:
    """Yield log lines: one about the sync, one for each of the busiest `streams`, and one for the rest."""
    bytes_received = sum(stream.bytes_received for stream in progress.streams)
    rate = bytes_received / progress.seconds / 1e6 if progress.seconds else 0.0
    stages = f" ({', '.join(progress.stages)})" if progress.stages else ""
    yield (
        f"Progress after {progress.seconds:.0f} s{stages}: {rate:.1f} MB/s received, "
        f"{progress.buffered_bytes / 1e6:.1f} MB buffered, {counted(progress.states_released, 'state')} released, "
        f"{progress.states_held:,} held{_tasks(progress)}."
    )
    shown, remaining = _busiest(
        [stream for stream in (progress.streams if streams is None else streams) if stream.rows_received]
    )
    for stream in shown:
        yield (
            f"Stream {stream.stream}: {counted(stream.rows_received, 'record')} received, {stream.committed:,} "
            f"committed{rejected(stream.rows_rejected, stream.values_rejected)}."
        )
    if remaining:
        received, committed = (sum(getattr(s, name) for s in remaining) for name in ("rows_received", "committed"))
        yield (
            f"{counted(len(remaining), 'other stream')}: {counted(received, 'record')} received, {committed:,} "
            "committed."
        )


def _busiest(streams: Sequence[StreamProgress]) -> tuple[list[StreamProgress], list[StreamProgress]]:
    """Return the BUSIEST streams by received bytes, and all other streams, both in catalog order."""
    by_size = sorted(streams, key=lambda stream: -stream.bytes_received)
    shown = {stream.stream for stream in by_size[:BUSIEST]}
    return [s for s in streams if s.stream in shown], [s for s in streams if s.stream not in shown]


def _tasks(progress: Progress) -> str:
    tasks = progress.tasks
    if not (tasks.running or tasks.waiting):
        return ""
    counts = {"running": tasks.running, "waiting": tasks.waiting, "ended": tasks.ended}
    text = ", ".join(f"{count:,} {status}" for status, count in counts.items() if count)
    if not progress.encoding_bytes:
        return f"; Spark tasks: {text}"
    return f"; Spark encodes {progress.encoding_bytes / 1e6:.1f} MB, tasks: {text}"


def rejected(records: int, values: int) -> str:
    """Return a phrase such as ", 3 records rejected (see _errors/)", or "" if nothing was rejected."""
    counts = {"record": records, "value": values}
    text = " and ".join(counted(count, noun) for noun, count in counts.items() if count)
    return f", {text} rejected (see _errors/)" if text else ""


def progress_table(progress: Progress) -> Table:
    """Return the progress as a table for the terminal, with a row for each of the busiest streams."""
    from rich.table import Table

    title = (
        f"{', '.join(progress.stages)} · {progress.seconds:.0f} s · {progress.buffered_bytes / 1e6:.1f} MB "
        f"buffered · {counted(progress.states_released, 'state')} released, {progress.states_held:,} held"
        f"{_tasks(progress)}"
    )
    shown, remaining = _busiest(progress.streams)
    caption = f"and {counted(len(remaining), 'other stream')}" if remaining else None
    table = Table("stream", title=title, caption=caption)
    for heading in ("received", "committed", "rejected", "MB/s", "files"):
        table.add_column(heading, justify="right")
    for stream in shown:
        rate = stream.bytes_received / progress.seconds / 1e6 if progress.seconds else 0.0
        table.add_row(
            str(stream.stream),
            f"{stream.rows_received:,}",
            f"{stream.committed:,}",
            f"{stream.rows_rejected + stream.values_rejected:,}",
            f"{rate:.1f}",
            str(len(stream.sizes)),
        )
    return table
