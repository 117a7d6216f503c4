"""Writing the report of a sync: an object at its start, and an object at its end. Failures do not affect the sync.

Readers of the table do not see the first object, whose name begins with `_`. A sync with only this object has died or
is still running.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import put
from destination_datalake.config.tables import REPORTS_FOLDER, REPORTS_TABLE
from destination_datalake.reports.report import ReportLine, encode, glue_columns

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.tables.catalog import TableCatalog

_logger = logging.getLogger(__name__)

SECONDS = 2.0
"""The maximum time that a sync waits for its report, up to half of it at the start."""

REPORT = "report.jsonl"
STARTED = "_started.json"


class ReportWriter:
    """Writes the two objects of a run on background threads. `day` (YYYY-MM-DD) is the day of the run's start.

    `catalog` contains the table of reports; None if there is no table.
    """

    def __init__(self, config: Config, access: AwsAccess, catalog: TableCatalog | None, day: str, run: str) -> None:
        self._database = config.lakeformation_database_name
        self._root = config.uri(REPORTS_FOLDER)
        self._access = access
        self._catalog = catalog
        self._day = day
        self._folder = f"{self._root}/day={day}/run_id={run}"
        self._warned = False
        self._lock = threading.Lock()
        self._finished = False
        self._starting: threading.Thread | None = None
        self._remaining = SECONDS

    def start(self, lines: Sequence[ReportLine]) -> None:
        """Write the object of the sync's start in the background."""
        self._starting = self._in_background(lambda: self._put(STARTED, lines))

    def wait(self) -> None:
        """Wait for the first object, for at most half of `SECONDS`."""
        if self._starting is not None:
            self._join(self._starting, SECONDS / 2)

    def finish(self, lines: Sequence[ReportLine]) -> None:
        """Write the report once. Return when it is written, or when the sync has waited `SECONDS` in total."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
        writing = [self._in_background(lambda: self._put(REPORT, lines))]
        if (catalog := self._catalog) is not None:
            writing.append(self._in_background(lambda: self._register(catalog)))
        for thread in writing:
            self._join(thread, SECONDS)
        if any(thread.is_alive() for thread in writing):
            self._warn(f"was not written within {SECONDS:.0f} s and may be missing", None)

    def _join(self, thread: threading.Thread, seconds: float) -> None:
        """Wait for a thread for at most `seconds`, and for at most the remaining time."""
        began = time.monotonic()
        thread.join(min(seconds, self._remaining))
        self._remaining = max(0.0, self._remaining - (time.monotonic() - began))

    def _put(self, name: str, lines: Sequence[ReportLine]) -> None:
        put(self._access.client("s3"), f"{self._folder}/{name}", encode(lines))

    def _register(self, catalog: TableCatalog) -> None:
        """Register the day as a partition of the table of reports. Needs one request if it is already registered."""
        from destination_datalake.tables.glue.lines_table import LinesTable, LinesTableKind

        kind = LinesTableKind(REPORTS_TABLE, "reports", _DESCRIPTION, glue_columns(), ("day",), "none")
        table = LinesTable(kind, self._database, self._root, self._access, catalog)
        if not table.has((self._day,)):
            table.register_folders({(self._day,): f"{self._root}/day={self._day}/"})

    def _in_background(self, task: Callable[[], None]) -> threading.Thread:
        def attempt() -> None:
            try:
                task()
            except Exception as error:
                self._warn("could not be written completely", error)

        thread = threading.Thread(target=attempt, name="sync-report", daemon=True)
        thread.start()
        return thread

    def _warn(self, problem: str, error: Exception | None) -> None:
        """Log a warning once, because both objects usually fail for the same reason."""
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            reason = "" if error is None else f" ({type(error).__name__}: {error})"
            _logger.warning(
                "The report of this sync under %s/ %s%s. The sync itself is not affected.", self._root, problem, reason
            )


_DESCRIPTION = "Reports of destination-datalake: a row for each sync, and a row for each of its streams"


_NOT_SENT = "The %s of this sync was not sent (%s). The sync itself is not affected."


def within(seconds: float, tasks: Mapping[str, Callable[[], None]]) -> None:
    """Run each task on its own thread. Return after at most `seconds`.

    The keys name the tasks in warnings about failures and timeouts.
    """
    deadline = time.monotonic() + seconds

    def attempt(name: str, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:
            _logger.warning(_NOT_SENT, name, f"{type(error).__name__}: {error}")

    threads = {
        name: threading.Thread(target=attempt, args=(name, task), name=name, daemon=True)
        for name, task in tasks.items()
    }
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            _logger.warning(_NOT_SENT, name, f"not within {seconds:.0f} s")
