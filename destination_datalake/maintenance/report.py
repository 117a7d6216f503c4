"""The outcome of a maintenance step, or its plan in a dry run, as text for the terminal and JSON for the log."""

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
    """The outcome of a maintenance step, or its plan in a dry run.

    `outcome` is a clause about the table. `figures` contains numbers of bytes, files and snapshots. `notes` are clauses
    about skipped work. `paths` are the objects that a dry run would delete.
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
        """Return the outcome as one line of JSON."""
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
        """Yield one line for the outcome, and one line for each object that a dry run would delete."""
        if self.failure is not None:
            yield f"{self.table} {self.step}: {self.failure.message}"
            return
        yield f"{self.table} {self.step}: {'; '.join((self.outcome, *self.notes))}"
        yield from (f"  {path}" for path in self.paths)


def megabytes(size: int) -> str:
    """Return a number of bytes in megabytes, with the unit."""
    return f"{size / 1e6:.1f} MB"
