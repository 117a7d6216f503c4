"""The read-only interface through which the command `verify` reads a table: files, expected statistics and problems.

Methods yield files one by one, so memory use does not grow with the number of files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from destination_datalake.aws.errors import explain
from destination_datalake.files.plan import ExpectedFileStats
from destination_datalake.tables.table import TableConflict
from destination_datalake.unforeseen import exhaustion

if TYPE_CHECKING:
    from destination_datalake.files.plan import VerifiedFile


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction in a table. `location` is usually the URI of an object. `description` is a clause about it."""

    location: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The numbers about a table in the report of a sync, for comparison with the table.

    None means that the report does not contain the number.

    - `run`: the ID of the sync.
    - `started` and `finished`: the times at which the sync started and finished.
    - `has_successor`: whether a later sync without a report may have changed the table.
    - `may_be_replaced`: whether a later sync may have replaced the sync's files, or removed them before publication.
    - `is_rewritten`: whether this sync or a later sync may have rewritten files to widen columns.
    - `rows_erased`: the maximum number of the sync's rows that the command `delete-rows` has removed since, or None if
      unknown.
    """

    run: str
    finished: datetime
    started: datetime | None = None
    snapshot: int | None = None
    table_rows: int | None = None
    table_files: int | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    has_successor: bool = False
    may_be_replaced: bool = False
    is_rewritten: bool = False
    rows_erased: int | None = 0


def unreadable(error: Exception, where: str, clauses: tuple[type[Exception], ...] = (TableConflict,)) -> str:
    """Return why the object or table `where` is unreadable, as a clause about it.

    If the error has one of the types in `clauses`, its message already is such a clause. For other errors, the clause
    contains only the error's type or advice, because the error's message may quote data. Raises `error` itself if this
    machine has run out of a resource, such as memory or disk space.
    """
    if exhaustion(error) is not None:
        raise error
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, clauses):
        return str(error)
    failure = explain(error, doing="read", resource=where)
    return f"cannot be read ({type(error).__name__})" if failure is None else f"cannot be read: {failure.advice}"


class VerifiedTable(Protocol):
    """The state of a table at the time when the connector loaded the table.

    Methods add contradictions to `problems`. They add sentences about harmless differences and skipped comparisons to
    `notes`. Methods may raise TableConflict and exceptions of the AWS libraries.
    """

    problems: list[Finding]
    notes: list[str]

    def expected_files(self) -> Iterator[ExpectedFileStats]:
        """Yield the expected size, number of rows and schema of each file of the table."""

    def conclude(self, read: Mapping[str, Total] | None, reported: Sequence[Reported]) -> None:
        """Compare totals of the table's files with the table's metadata and with the reports of the table's syncs.

        Call this method after reading all files. `read` maps each group of files to the totals of the files that the
        caller has read. It is None if the caller did not read all files. `reported` begins with the newest report.
        """

    def has_changed(self) -> bool:
        """Load the table again, and return whether another writer has changed the table since the first time."""


@dataclass(slots=True)
class Total:
    """The numbers of files, rows and bytes in one group of files. Counts only files that the caller has read."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


_PRECISION_SECONDS = 0.1
"""Tolerance for comparing the times in a report with the times in row IDs.

The operating system may have adjusted the clock in between.
"""


class SyncStarts:
    """The times at which syncs started, according to the row IDs in their files (see `VerifiedFile.started`).

    All batches of a sync have the same start. If the row IDs in a file have a different start, another program replaced
    the file by a file of another sync.
    """

    def __init__(self) -> None:
        self._starts: dict[str, Counter[int]] = {}
        self._uris: dict[tuple[str, int], str] = {}

    def add(self, file: VerifiedFile) -> None:
        """Count the file for the sync whose ID is in the file's name. Skip a file with an unknown start."""
        if file.started is not None:
            run = run_of(file.uri)
            self._starts.setdefault(run, Counter())[file.started] += 1
            self._uris.setdefault((run, file.started), file.uri)

    def problems(self, reported: Sequence[Reported]) -> Iterator[Finding]:
        """Yield a finding about one file for each wrong start of a sync.

        A start is wrong if it differs from the start in most files of the sync, or if it is outside the time for which
        the sync ran according to its report.
        """
        times = {
            report.run: (
                (report.started.timestamp() - _PRECISION_SECONDS) * 1000,
                (report.finished.timestamp() + _PRECISION_SECONDS) * 1000,
            )
            for report in reported
            if report.started is not None
        }
        for run, starts in self._starts.items():
            # Most files are original, so the most frequent start is that of the sync.
            [(most, _)] = starts.most_common(1)
            first, last = times.get(run, (0, math.inf))
            for start in starts:
                if start != most or not first <= start <= last:
                    problem = f"contains row IDs that do not belong to run {run} in its name, so the file was replaced"
                    yield Finding(self._uris[run, start], problem)


def run_of(uri: str) -> str:
    """Return the ID of the sync that wrote a file. The file's name begins with this ID (see `EncodeUnit.name`)."""
    return uri.rpartition("/")[2].partition("-")[0]


def total(results: Iterable[VerifiedFile], into: dict[str, Total]) -> None:
    """Add the results of reading files to the totals of the files' groups.

    Skip a file that another writer deleted before it could be read.
    """
    for file in results:
        if not file.was_deleted:
            group = into.setdefault(file.group, Total())
            group.files, group.rows, group.bytes = group.files + 1, group.rows + file.rows, group.bytes + file.size
