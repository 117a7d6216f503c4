"""The interface of a table for `verify`: its files, what it says of them, and contradictions. Nothing is changed.

Files are yielded one by one, so that memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from destination_datalake.files.plan import Claim

if TYPE_CHECKING:
    from destination_datalake.files.plan import FileVerified


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction: `where`, mostly an object's URI, and `what`, a clause about it."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Reported:
    """What the report of the table's last sync says, as far as it can be compared. None is what it does not say.

    `is_last` is False if another sync has begun since that has no report (yet): it may have changed the table.
    """

    run: str
    finished: datetime
    snapshot: int | None
    table_rows: int | None
    table_files: int | None
    rows: int
    files: int
    is_last: bool


class VerifiedTable(Protocol):
    """A table as it was when it was loaded. Methods may raise TableConflict, and what AWS libraries raise.

    They add what contradicts itself to `problems`, and what is no problem, or was not compared, to `notes`.
    """

    problems: list[Finding]
    notes: list[str]

    def claims(self) -> Iterator[Claim]:
        """Yield what the table says of each of its files."""

    def conclude(self, read: Mapping[str, Total] | None, reported: Reported | None) -> None:
        """Compare what was read, by the group of the claims, with what the table and its last report say.

        To be called after all claims; `read` is None if not all files were read.
        """

    def has_changed(self) -> bool:
        """Whether another writer has changed the table since it was loaded."""


@dataclass(slots=True)
class Total:
    """The files of a group that were read."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


def total(results: Iterable[FileVerified], into: dict[str, Total]) -> None:
    """Add files that were read to their groups."""
    for each in results:
        if not each.gone:
            group = into.setdefault(each.group, Total())
            group.files, group.rows, group.bytes = group.files + 1, group.rows + each.rows, group.bytes + each.size
