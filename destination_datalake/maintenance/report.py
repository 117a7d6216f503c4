"""What a step of maintenance has done to a table, or would do, as a line for people and a line of JSON for logs."""

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
    """One step's outcome. `done` completes "Table …: "; `figures` are its numbers, of bytes, files and snapshots.

    `notes` are clauses about what was left as it is. `paths` are the objects that a dry run would delete.
    """

    table: TableName
    step: StepName
    done: str
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
            "outcome": self.done,
            **self.figures,
            "notes": [*self.notes],
            "error": None if self.failure is None else self.failure.message,
            "duration_ms": round(self.seconds * 1000),
        }
        return json.dumps(line, ensure_ascii=False)

    def lines(self) -> Iterator[str]:
        """Yield the outcome for people, in one line, and the paths of a dry run, each in a line of its own."""
        if self.failure is not None:
            yield f"{self.table} {self.step}: {self.failure.message}"
            return
        yield f"{self.table} {self.step}: {'; '.join((self.done, *self.notes))}"
        yield from (f"  {path}" for path in self.paths)


def megabytes(size: int) -> str:
    """Return a size in bytes as people read it."""
    return f"{size / 1e6:.1f} MB"
