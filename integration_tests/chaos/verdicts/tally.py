"""What a number of rounds were put through, and what came of it."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts over some rounds."""

    rounds: int = 0
    syncs: int = 0
    succeeded: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    overlaps: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    twice: int = 0
    """Records that are in a table twice, because they were sent again without having been acknowledged."""
    ours: Counter[str] = field(default_factory=Counter)
    """Messages of syncs that reported a fault of AWS as the connector's own (system_error)."""

    def add(self, tally: "Tally") -> None:
        """Count in another one."""
        for name, value in vars(tally).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)
