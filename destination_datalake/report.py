"""What a sync does, for people: progress while it runs, a summary when it ends."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.protocol.catalog import StreamId

if TYPE_CHECKING:
    from rich.table import Table

    from destination_datalake.protocol.stdout import Stdout

LOG_EVERY_SECONDS = 5.0


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
    """One line on the whole, one for each stream that has received anything."""
    received_bytes = sum(stream.received_bytes for stream in progress.streams)
    rate = received_bytes / progress.seconds / 1e6 if progress.seconds else 0.0
    yield (
        f"Progress after {progress.seconds:.0f} s: {rate:.1f} MB/s received, {progress.buffered_bytes / 1e6:.1f} MB "
        f"buffered, {progress.states_released} states released, {progress.states_held} held."
    )
    for stream in progress.streams:
        if stream.received:
            yield (
                f"Stream {stream.stream}: {stream.received} records received, {stream.committed} committed"
                f"{_rejected(stream)}."
            )


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
        f"{progress.seconds:.0f} s · {progress.buffered_bytes / 1e6:.1f} MB buffered · "
        f"{progress.states_released} states released, {progress.states_held} held"
    )
    table = Table("stream", title=title)
    for heading in ("received", "committed", "rejected", "MB/s", "files"):
        table.add_column(heading, justify="right")
    for stream in progress.streams:
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
