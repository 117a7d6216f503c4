"""When a stream has too many rejects."""

from __future__ import annotations

from dataclasses import dataclass

from destination_datalake.rejects.counts import RejectCounts

_NAMED_REASONS = 10


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """How many records of a stream may have rejects: a share of those received and, optionally, a number."""

    max_ratio: float = 1.0
    max_count: int | None = None

    def exceeded(self, counts: RejectCounts) -> str | None:
        """Return which limit the counts exceed and why, with the reasons per column; None if they exceed none."""
        if self.max_count is not None and counts.affected > self.max_count:
            allowed = f"rejects.max_count {self.max_count} allows"
        elif counts.records and counts.affected / counts.records > self.max_ratio:
            allowed = f"rejects.max_ratio {self.max_ratio} allows"
        else:
            return None
        affected = f"{counts.affected} of {counts.records} records have rejects"
        return f"{affected}, which is more than {allowed}: {describe_reasons(counts)}"


def describe_reasons(counts: RejectCounts) -> str:
    """Return the most frequent reasons per column: `price DESTINATION_SERIALIZATION_ERROR 12 times; …`."""
    ranked = sorted(counts.reasons.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1]))
    named = [
        f"{'whole records' if column is None else column} {reason} {count} time{'' if count == 1 else 's'}"
        for (column, reason), count in ranked[:_NAMED_REASONS]
    ]
    more = len(ranked) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])
