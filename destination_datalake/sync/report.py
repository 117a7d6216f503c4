"""What a sync does, for people: progress while it runs, a summary when it ends."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.protocol.catalog import StreamId

if TYPE_CHECKING:
    from rich.table import Table

    from destination_datalake.protocol.stdout import Stdout

LOG_EVERY_SECONDS = 5.0

BUSIEST = 10
"""Streams that a sync of many tells of by name while it runs."""


class Activities:
    """What is going on, on whichever threads."""

    ALL = ("reading", "encoding", "committing", "publishing")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Tell of it for as long as the block takes."""
        with self._lock:
            self._running[activity] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[activity] -= 1

    def now(self) -> tuple[str, ...]:
        """All that goes on, in the order of the way of the data."""
        return tuple(activity for activity in self.ALL if self._running[activity])


@dataclass(slots=True)
class StreamProgress:
    """One stream's counts so far."""

    stream: StreamId
    received: int = 0
    received_bytes: int = 0
    committed: int = 0
    files: int = 0
    file_bytes: int = 0
    rejected_records: int = 0
    rejected_values: int = 0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a sync."""

    streams: tuple[StreamProgress, ...]
    seconds: float
    buffered_bytes: int
    states_released: int
    states_held: int
    activities: tuple[str, ...] = ()


class Reporter:
    """Tells how a sync goes: as LOG messages every few seconds, and live on stderr where that is a terminal."""

    def __init__(self, out: Stdout, look: Callable[[], Progress]) -> None:
        self._out = out
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def __enter__(self) -> Reporter:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Say how it ended."""
        self._ended.set()
        self._thread.join()
        for line in summary(self._look()):
            self._out.log("INFO", line)

    def _run(self) -> None:
        if sys.stderr.isatty():
            self._show_live()
        else:
            self._log_regularly()

    def _log_regularly(self) -> None:
        while not self._ended.wait(LOG_EVERY_SECONDS):
            for line in progress_lines(self._look()):
                self._out.log("INFO", line)

    def _show_live(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        logged = time.monotonic()
        with Live(progress_table(self._look()), console=console, refresh_per_second=4) as live:
            while not self._ended.wait(0.25):
                progress = self._look()
                live.update(progress_table(progress))
                if time.monotonic() - logged >= LOG_EVERY_SECONDS:
                    logged = time.monotonic()
                    for line in progress_lines(progress):
                        self._out.log("INFO", line)
            live.update(progress_table(self._look()))


def progress_lines(progress: Progress) -> Iterable[str]:
    """One line on the whole, one for each of the busiest streams, and one on the others together."""
    received_bytes = sum(stream.received_bytes for stream in progress.streams)
    rate = received_bytes / progress.seconds / 1e6 if progress.seconds else 0.0
    doing = f" ({', '.join(progress.activities)})" if progress.activities else ""
    yield (
        f"Progress after {progress.seconds:.0f} s{doing}: {rate:.1f} MB/s received, "
        f"{progress.buffered_bytes / 1e6:.1f} MB buffered, {progress.states_released} states released, "
        f"{progress.states_held} held."
    )
    shown, others = _busiest([stream for stream in progress.streams if stream.received])
    for stream in shown:
        yield (
            f"Stream {stream.stream}: {stream.received} records received, {stream.committed} committed"
            f"{_rejected(stream)}."
        )
    if others:
        yield (
            f"{len(others)} other streams: {sum(stream.received for stream in others)} records received, "
            f"{sum(stream.committed for stream in others)} committed."
        )


def _busiest(streams: Sequence[StreamProgress]) -> tuple[list[StreamProgress], list[StreamProgress]]:
    """The streams of which most has been received, in the order of the catalog, and the others."""
    by_size = sorted(streams, key=lambda stream: -stream.received_bytes)
    shown = {stream.stream for stream in by_size[:BUSIEST]}
    return [s for s in streams if s.stream in shown], [s for s in streams if s.stream not in shown]


def summary(progress: Progress) -> Iterable[str]:
    """One line for each stream, then one on the whole."""
    for stream in progress.streams:
        failed = ", FAILED" if stream.failed else ""
        yield (
            f"Stream {stream.stream}: {stream.received} records received, {stream.committed} committed in "
            f"{stream.files} files of {stream.file_bytes / 1e6:.1f} MB{_rejected(stream)}{failed}."
        )
    records = sum(stream.committed for stream in progress.streams)
    rate = records / progress.seconds if progress.seconds else 0.0
    yield (
        f"{records} records committed in {progress.seconds:.1f} s ({rate:.0f} records/s), "
        f"{progress.states_released} states released."
    )


def _rejected(stream: StreamProgress) -> str:
    counts = {"records": stream.rejected_records, "values": stream.rejected_values}
    said = " and ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f", {said} rejected (see _errors/)" if said else ""


def progress_table(progress: Progress) -> Table:
    """The same as a table for the terminal."""
    from rich.table import Table

    title = (
        f"{', '.join(progress.activities)} · {progress.seconds:.0f} s · {progress.buffered_bytes / 1e6:.1f} MB "
        f"buffered · {progress.states_released} states released, {progress.states_held} held"
    )
    shown, others = _busiest(progress.streams)
    caption = f"and {len(others)} other streams" if others else None
    table = Table("stream", title=title, caption=caption)
    for heading in ("received", "committed", "rejected", "MB/s", "files"):
        table.add_column(heading, justify="right")
    for stream in shown:
        rate = stream.received_bytes / progress.seconds / 1e6 if progress.seconds else 0.0
        table.add_row(
            str(stream.stream),
            f"{stream.received:,}",
            f"{stream.committed:,}",
            f"{stream.rejected_records + stream.rejected_values:,}",
            f"{rate:.1f}",
            str(stream.files),
        )
    return table
