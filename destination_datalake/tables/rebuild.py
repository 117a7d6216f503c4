"""The interface of a table whose archive is replayed: its state, and how its content is replaced.

The new content is made in another table, the *made* one, whose files lie in the first one's folder. The first one then
takes them over, in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from destination_datalake.archive.plan import TableFacts

if TYPE_CHECKING:
    from destination_datalake.files.plan import SourceFile
    from destination_datalake.tables.table import TableName


@dataclass(frozen=True, slots=True)
class TableState(TableFacts):
    """A table as it was found.

    `sources` are the files of its content with the position deletes that readers apply, `unpublished` those of
    unfinished syncs. `version` changes with each commit of rows that readers see, or will. `columns` are their names.
    """

    sources: tuple[SourceFile, ...]
    version: str
    columns: tuple[str, ...]
    unpublished: tuple[SourceFile, ...] = ()

    @property
    def written(self) -> tuple[SourceFile, ...]:
        """All files with rows that this connector may have written, deleted rows too."""
        return tuple(replace(source, position_deletes=()) for source in (*self.sources, *self.unpublished))


class Rebuild(Protocol):
    """One table. Methods may raise TableConflict, TableBusy, CommitStateUnknown, or what the AWS libraries raise."""

    def state(self, name: TableName) -> TableState | None:
        """Return a table's state; None if there is no such table."""

    def clone(self, made: TableName, marks: dict[str, str]) -> None:
        """Create the made table: as this one, without rows, and with these parameters besides."""

    def begin(self) -> None:
        """Keep other syncs from writing to this table, if it is of a kind that has one writer at a time."""

    def take_over(self, made: TableName, seen: TableState) -> bool:
        """Put the made table's content in the place of this one's, in one step, and drop that table.

        False, and nothing is changed, if this table is not as it was seen any more.
        """

    def drop(self, made: TableName) -> None:
        """Drop the made table. What only it has is deleted by later syncs, or as orphans."""
