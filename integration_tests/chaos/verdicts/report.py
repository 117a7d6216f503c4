"""What a run of rounds has shown, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass

from integration_tests.chaos.verdicts.tally import Tally


@dataclass(frozen=True)
class Verdict:
    """What became of one round, or of one history. `violation` is empty if every promise was kept."""

    number: int
    subject: str
    tally: Tally
    log: tuple[str, ...]
    violation: str
    seconds: float
    is_history: bool = False

    @property
    def unit(self) -> str:
        return "history" if self.is_history else "round"

    def __str__(self) -> str:
        counts = self.tally
        line = (
            f"{self.unit} {self.number:>4}  {self.subject:<34} {self.seconds:>5.1f} s  {counts.syncs} syncs, "
            f"{counts.kills.total()} kills, {counts.faults.total()} faults, {counts.overlaps.total()} overlaps"
        )
        return f"{line}  BROKEN" if self.violation else line

    def details(self, seed: int) -> str:
        """Say what was broken, after what, and how to see it again."""
        lines = [f"BROKEN in {self.unit} {self.number} ({self.subject}): {self.violation}", *self.log]
        return "\n".join([*lines, f'Play it again: make chaos SEED={seed} ARGS="--{self.unit} {self.number}"'])


_COLUMNS = ("played", "syncs", "exit 0", "kills", "faults", "overlaps", "acknowledged", "twice", "broken")


def summary(verdicts: list[Verdict]) -> str:
    """Return one line for each kind of table, and what it was put through."""
    rows: dict[str, list[int]] = {}
    total = Tally()
    for verdict in verdicts:
        counts = verdict.tally
        values = [counts.rounds, counts.syncs, counts.succeeded, counts.kills.total(), counts.faults.total()]
        values += [counts.overlaps.total(), counts.acknowledged, counts.twice, bool(verdict.violation)]
        before = rows.get(verdict.subject, [0] * len(_COLUMNS))
        rows[verdict.subject] = [a + b for a, b in zip(before, values, strict=True)]
        total.add(counts)
    rows = dict(sorted(rows.items()))
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    lines = ["".join([f"{'':<36}", *(f"{name:>13}" for name in _COLUMNS)])]
    lines += ["".join([f"{subject:<36}", *(f"{value:>13,}" for value in values)]) for subject, values in rows.items()]
    lines += [f"{kind}: {_counts(counts)}" for kind, counts in _by_kind(total).items()]
    return "\n".join(lines)


def _by_kind(total: Tally) -> Mapping[str, Mapping[str, int]]:
    return {"killed": total.kills, "faults": total.faults, "overlaps": total.overlaps, "told as ours": total.ours}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"
