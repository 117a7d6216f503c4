"""The read-only interface of a table for `verify`: its files, their expected statistics, and contradictions.

Files are yielded one by one, so that memory does not grow with their number.
"""

from __future__ import annotations

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
    """A contradiction: `where` is usually an object's URI, and `what` is a clause about it."""

    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The comparable figures of a sync's report about the table. None means that the report does not have the figure.

    `has_successor`: a later sync without a report may have changed the table.
    `may_be_replaced`: this sync or a later one may have replaced the content.
    `is_rewritten`: this sync or a later one may have rewritten files to widen columns.
    `rows_erased`: maximum number of its rows that `delete-rows` has removed since, or None if unknown.
    """

    run: str
    finished: datetime
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
    """Return why an object or a table cannot be read, as a clause about it. The messages of `clauses` are such clauses.

    Errors of libraries may quote the content, so only their type is named. Raises the error if a resource of this
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
    """A table at the time when it was loaded. Methods may raise TableConflict and errors of AWS libraries.

    They add contradictions to `problems`, and harmless differences and skipped comparisons to `notes`.
    """

    problems: list[Finding]
    notes: list[str]

    def expected_files(self) -> Iterator[ExpectedFileStats]:
        """Yield the expected statistics of each file."""

    def conclude(self, read: Mapping[str, Total] | None, reported: Sequence[Reported]) -> None:
        """Compare the totals that were read, by group of files, with the table and its reports, the newest first.

        Call it after all files were read. `read` is None if some files were not read.
        """

    def has_changed(self) -> bool:
        """Return whether another writer has changed the table since it was loaded."""


@dataclass(slots=True)
class Total:
    """Totals of the files of a group that were read."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


def total(results: Iterable[VerifiedFile], into: dict[str, Total]) -> None:
    """Add files that were read to the totals of their groups."""
    for file in results:
        if not file.was_deleted:
            group = into.setdefault(file.group, Total())
            group.files, group.rows, group.bytes = group.files + 1, group.rows + file.rows, group.bytes + file.size
