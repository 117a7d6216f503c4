"""Writing the report of a sync: an object when it begins, and another one when it ends. No failure here is the sync's.

Readers of the table do not see the first, whose name begins with `_`. A sync that has only that has died, or is still
running.
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
"""How long a sync waits for its report to be written, at most: half of it, if need be, when it begins."""

REPORT = "report.jsonl"
STARTED = "_started.json"


class ReportWriter:
    """Writes the two objects of a run that began on a day (YYYY-MM-DD), each on a thread that no one waits for long.

    `catalog` is where the table over reports is; None if there is to be none.
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
        self._left = SECONDS

    def start(self, lines: Sequence[ReportLine]) -> None:
        """Write that the sync has begun, in the background."""
        self._starting = self._in_background(lambda: self._put(STARTED, lines))

    def wait(self) -> None:
        """Wait until the first object is written, or half of `SECONDS` at most."""
        if self._starting is not None:
            self._join(self._starting, SECONDS / 2)

    def finish(self, lines: Sequence[ReportLine]) -> None:
        """Write the report, once; return when it is written, or when the sync has waited for `SECONDS` in all."""
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
            self._warn(f"was not written within {SECONDS:.0f} s, so it may be missing", None)

    def _join(self, thread: threading.Thread, seconds: float) -> None:
        """Wait for a thread for so many seconds, or those that are left, at most."""
        began = time.monotonic()
        thread.join(min(seconds, self._left))
        self._left = max(0.0, self._left - (time.monotonic() - began))

    def _put(self, name: str, lines: Sequence[ReportLine]) -> None:
        put(self._access.client("s3"), f"{self._folder}/{name}", encode(lines))

    def _register(self, catalog: TableCatalog) -> None:
        """Make the day a partition of the table over reports. One request if an earlier sync has."""
        from destination_datalake.tables.glue.lines_table import LinesTable, LinesTableKind

        kind = LinesTableKind(REPORTS_TABLE, "reports", _DESCRIPTION, glue_columns(), ("day",), "none")
        table = LinesTable(kind, self._database, self._root, self._access, catalog)
        if not table.has((self._day,)):
            table.register_folders({(self._day,): f"{self._root}/day={self._day}/"})

    def _in_background(self, act: Callable[[], None]) -> threading.Thread:
        def attempt() -> None:
            try:
                act()
            except Exception as error:
                self._warn("could not be written in full", error)

        thread = threading.Thread(target=attempt, name="sync-report", daemon=True)
        thread.start()
        return thread

    def _warn(self, what: str, error: Exception | None) -> None:
        """Warn once: what keeps a sync from writing one object mostly keeps it from the other too."""
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            reason = "" if error is None else f" ({type(error).__name__}: {error})"
            _logger.warning(
                "The report of this sync under %s/ %s%s. The sync itself is not affected.", self._root, what, reason
            )


_DESCRIPTION = "What each sync of destination-datalake did: a row for the sync, and one for each stream"


_NOT_SENT = "The %s of this sync was not sent (%s). The sync itself is not affected."


def within(seconds: float, tasks: Mapping[str, Callable[[], None]]) -> None:
    """Run each task on a thread of its own; return after so many seconds at most.

    The keys say what they are for, in the warning about one that fails or takes longer.
    """
    deadline = time.monotonic() + seconds

    def attempt(what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            _logger.warning(_NOT_SENT, what, f"{type(error).__name__}: {error}")

    threads = {
        what: threading.Thread(target=attempt, args=(what, act), name=what, daemon=True) for what, act in tasks.items()
    }
    for thread in threads.values():
        thread.start()
    for what, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            _logger.warning(_NOT_SENT, what, f"not within {seconds:.0f} s")
