"""The report of a maintenance step, printed as text to the terminal and as JSON to the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from destination_datalake.errors import Failure

if TYPE_CHECKING:
    from destination_datalake.tables.table import TableName

StepName = Literal["compaction", "expiry", "orphans", "optimizers", "archive"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """The report of one maintenance step on one table. In a dry run, it describes the changes that the step would make.

    `outcome` is a clause about the table, such as "nothing to compact". `figures` contains numbers of bytes, files and
    snapshots, by name. `notes` contains clauses about skipped work. In a dry run, `paths` contains the objects that the
    step would delete.
    """

    table: TableName
    step: StepName
    outcome: str
    figures: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    paths: Sequence[str] = ()
    failure: Failure | None = None
    seconds: float = 0.0

    def log_line(self) -> str:
        """Return the report as one line of JSON."""
        line = {
            "table": str(self.table),
            "step": self.step,
            "success": self.failure is None,
            "outcome": self.outcome,
            **self.figures,
            "notes": [*self.notes],
            "error": None if self.failure is None else self.failure.message,
            "duration_ms": round(self.seconds * 1000),
        }
        return json.dumps(line, ensure_ascii=False)

    def lines(self) -> Iterator[str]:
        """Yield a line of text with the outcome. In a dry run, also yield a line for each object to delete.

        For a failed step, yields a single line with the message of the failure.
        """
        if self.failure is not None:
            yield f"{self.table} {self.step}: {self.failure.message}"
            return
        yield f"{self.table} {self.step}: {'; '.join((self.outcome, *self.notes))}"
        yield from (f"  {path}" for path in self.paths)


def megabytes(size: int) -> str:
    """Return a number of bytes as a string in megabytes, such as "1.5 MB"."""
    return f"{size / 1e6:.1f} MB"
