"""What the conductor asks of a table, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from destination_datalake.files.plan import DataFile, FilePlan, RewriteTask, Rewritten


class TableName(NamedTuple):
    """Where a table is in the Glue Data Catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class TableConflict(Exception):
    """The table that is there cannot take this stream. The text names both and what the user can do."""


class TableBusy(Exception):
    """Other writers were faster at every attempt: nothing was changed, and trying again later may do."""


class OutcomeUnknown(Exception):
    """Whether a commit was made cannot be told, so nothing that belongs to it may be deleted."""


Rewrite = Callable[[Sequence[RewriteTask]], Sequence[Rewritten]]
"""Writes files again on the executors. Raises RewriteFailed if one cannot be."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch's files are in the table."""


@dataclass(frozen=True, slots=True)
class Reencode:
    """The batch's files are deleted, and no commit holds them: encode the batch again by the table's new plan.

    `reason` is a clause for the log and for the failure of a batch that is encoded too often.
    """

    reason: str


class Table(Protocol):
    """One stream's table during one sync. One thread at a time.

    Every method may raise TableConflict, TableBusy, OutcomeUnknown, or what AWS's libraries raise.
    """

    name: TableName

    def prepare(self) -> None:
        """Create the table, or make it fit the stream; find what an earlier sync left unfinished. Comes first."""

    def plan(self) -> FilePlan:
        """How the next batch's files are to be written, given all that was committed before."""

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Put the files into the table, all or none.

        A stream that appends shows them to readers at once; one that replaces keeps them aside, but safe. If the
        columns had to become wider than the files have them, or were changed by others, the answer is Reencode; the
        table's own files were written anew with `rewrite` if that was needed.
        """

    def publish(self, rewrite: Rewrite) -> None:
        """Settle what is left once the stream is complete, whether or not it had records.

        Of a stream that replaces: show readers the new records instead of the old ones, in one step. Of one that
        appends: take in what needed `rewrite` and found no batch to come with.
        """

    def discard(self, files: Sequence[DataFile]) -> None:
        """Remove files that will not be committed."""
