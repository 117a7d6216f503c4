"""The read-only interface through which `verify` reads a table: files, expected statistics and problems.

Files are yielded one by one, so memory use does not grow with their number.
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
    """What a sync's report says about the table, for comparison. None means that the report lacks the number.

    - `started` and `finished`: the times between which the sync ran.
    - `has_successor`: a later sync without a report may have changed the table.
    - `may_be_replaced`: a later sync may have replaced the sync's files, or dropped them unpublished.
    - `is_rewritten`: the reported sync or a later one may have rewritten files to widen columns.
    - `rows_erased`: the maximum number of the sync's rows that `delete-rows` has removed later, or None if unknown.
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
    """Return why an object or a table cannot be read, as a clause about it.

    The messages of exceptions of the types `clauses` already are such clauses. Of other errors, only the type is named,
    or advice given, because their messages may quote what was read. Raises the error itself if a resource of this
    machine, such as memory or disk, is exhausted.
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
    """A table as it was when it was loaded.

    Methods add contradictions to `problems`, and harmless differences and skipped comparisons to `notes`. They may
    raise TableConflict and errors of the AWS libraries.
    """

    problems: list[Finding]
    notes: list[str]

    def expected_files(self) -> Iterator[ExpectedFileStats]:
        """Yield the expected size, rows and schema of each file of the table."""

    def conclude(self, read: Mapping[str, Total] | None, reported: Sequence[Reported]) -> None:
        """Compare the totals of the files that were read with the table's metadata and with the reports of its syncs.

        Call this method after reading all files. `read` contains the totals of each group of files, or is None if some
        files were not read. `reported` begins with the newest report.
        """

    def has_changed(self) -> bool:
        """Read the table again, and return whether another writer has changed it since it was loaded."""


@dataclass(slots=True)
class Total:
    """The totals over all files of one group that were read. `bytes` is their size."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


_PRECISION_SECONDS = 0.1
"""The precision of comparisons of times in reports with the clock of row IDs, which may have been adjusted."""


class SyncStarts:
    """The starts of syncs, according to the row IDs in their files (see `VerifiedFile.started`).

    All batches of a sync have the same start. A file with a different start was replaced by a file of another sync.
    """

    def __init__(self) -> None:
        self._starts: dict[str, Counter[int]] = {}
        self._uris: dict[tuple[str, int], str] = {}

    def add(self, file: VerifiedFile) -> None:
        """Count a file for the sync in its name. Skip files whose start is unknown."""
        if file.started is not None:
            run = run_of(file.uri)
            self._starts.setdefault(run, Counter())[file.started] += 1
            self._uris.setdefault((run, file.started), file.uri)

    def problems(self, reported: Sequence[Reported]) -> Iterator[Finding]:
        """Yield a file for each start that differs from the start of most files, or that the sync's report excludes."""
        times = {
            report.run: (
                (report.started.timestamp() - _PRECISION_SECONDS) * 1000,
                (report.finished.timestamp() + _PRECISION_SECONDS) * 1000,
            )
            for report in reported
            if report.started is not None
        }
        for run, starts in self._starts.items():
            [(most, _)] = starts.most_common(1)
            first, last = times.get(run, (0, math.inf))
            for start in starts:
                if start != most or not first <= start <= last:
                    problem = f"contains row IDs that do not belong to run {run} in its name, so the file was replaced"
                    yield Finding(self._uris[run, start], problem)


def run_of(uri: str) -> str:
    """Return the ID of the sync that wrote a file, with which the file's name begins (see `EncodeUnit.name`)."""
    return uri.rpartition("/")[2].partition("-")[0]


def total(results: Iterable[VerifiedFile], into: dict[str, Total]) -> None:
    """Add files that were read to the totals of their groups. Skip files that were deleted before they were read."""
    for file in results:
        if not file.was_deleted:
            group = into.setdefault(file.group, Total())
            group.files, group.rows, group.bytes = group.files + 1, group.rows + file.rows, group.bytes + file.size
