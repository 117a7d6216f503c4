"""The interface of a table for `verify`: its files, what it says of them, and contradictions. Nothing is changed.

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
    """A contradiction: `where`, mostly an object's URI, and `what`, a clause about it."""

    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What the report of a sync says of the table, as far as it can be compared. None is what it does not say.

    `has_successor`: another sync has begun since that has no report (yet), and may have changed the table.
    `may_be_replaced`: this sync or a later one may have replaced the content; `is_rewritten`: or has widened columns.
    `rows_erased` is how many of its rows `delete-rows` has removed since at most, None if that is not known.
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
    """Return why an object or a table cannot be read, as a clause about it. `clauses` are errors whose text is one.

    Other errors of libraries may quote the content, so only their type is named. Raises the error if this machine lacks
    memory, disk or the like.
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
    """A table as it was when it was loaded. Methods may raise TableConflict, and what AWS libraries raise.

    They add what contradicts itself to `problems`, and what is no problem, or was not compared, to `notes`.
    """

    problems: list[Finding]
    notes: list[str]

    def expected_files(self) -> Iterator[ExpectedFileStats]:
        """Yield what the table says of each of its files."""

    def conclude(self, read: Mapping[str, Total] | None, reported: Sequence[Reported]) -> None:
        """Compare what was read, by the group of the files, with what the table and its reports say, the newest first.

        Call it after all files are read; `read` is None if not all files were read.
        """

    def has_changed(self) -> bool:
        """Whether another writer has changed the table since it was loaded."""


@dataclass(slots=True)
class Total:
    """The files of a group that were read."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


def total(results: Iterable[VerifiedFile], into: dict[str, Total]) -> None:
    """Add files that were read to their groups."""
    for each in results:
        if not each.was_deleted:
            group = into.setdefault(each.group, Total())
            group.files, group.rows, group.bytes = group.files + 1, group.rows + each.rows, group.bytes + each.size
