"""How much was rejected, and why: counts that travel from the executors to the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class RejectCounts:
    """Counts of one stream, or of a part of it.

    `records` were received: each was either written as a row or refused. `refused` of them are no rows. `affected` have
    at least one reject, the refused ones included. `reasons` counts rejects by column (under its source name; None for
    whole records) and reason, also the values that have no line of their own among the rejects.
    """

    records: int = 0
    refused: int = 0
    affected: int = 0
    reasons: Mapping[tuple[str | None, str], int] = field(default_factory=dict)

    @property
    def values(self) -> int:
        """How many values are rejected in records that were written."""
        return sum(count for (column, _), count in self.reasons.items() if column is not None)

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum."""
        reasons: Counter[tuple[str | None, str]] = Counter()
        records = refused = affected = 0
        for part in parts:
            records += part.records
            refused += part.refused
            affected += part.affected
            reasons.update(part.reasons)
        return cls(records, refused, affected, dict(reasons))
