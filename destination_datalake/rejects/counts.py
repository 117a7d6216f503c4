"""How much was rejected, and why: counts that travel from the executors to the end of the sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class RejectCounts:
    """Counts of one stream, or of a part of it.

    `records` were received: each was written or refused. `refused` are no rows. `affected` have at least one reject,
    the refused ones included. `reasons` counts what was rejected by column (as the source calls it; None for whole
    records) and reason, also the values that have no line of their own among the rejects.
    """

    records: int = 0
    refused: int = 0
    affected: int = 0
    reasons: Mapping[tuple[str | None, str], int] = field(default_factory=dict)

    @property
    def values(self) -> int:
        """How many values of records that were written are rejected."""
        return sum(count for (column, _), count in self.reasons.items() if column is not None)

    @classmethod
    def total(cls, all_counts: Iterable[Self]) -> Self:
        """Add them up."""
        reasons: Counter[tuple[str | None, str]] = Counter()
        records = refused = affected = 0
        for counts in all_counts:
            records += counts.records
            refused += counts.refused
            affected += counts.affected
            reasons.update(counts.reasons)
        return cls(records, refused, affected, dict(reasons))
