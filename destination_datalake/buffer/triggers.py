"""When a stream's waiting records become a batch, and when reading waits. Each rule is a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizeTrigger:
    """A batch is due once `batch_bytes` of the stream wait."""

    batch_bytes: int

    def due(self, waiting: int) -> bool:
        """Whether `waiting` bytes make a batch."""
        return waiting >= self.batch_bytes


@dataclass(frozen=True, slots=True)
class AgeTrigger:
    """A batch is due once a record, or a state that needs it, has waited for `seconds`."""

    seconds: float

    def due(self, since: float | None, now: float) -> bool:
        """Whether what waits since `since` has waited long enough."""
        return since is not None and now - since >= self.seconds

    def remaining(self, since: float, now: float) -> float:
        """Seconds until it will be due."""
        return max(0.0, since + self.seconds - now)


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """What waits is due, however little, once the buffer holds `buffer_bytes`: reading stops until there is room."""

    buffer_bytes: int

    def reached(self, used: int) -> bool:
        """Whether the buffer is full."""
        return used >= self.buffer_bytes


@dataclass(frozen=True, slots=True)
class HeldStatesLimit:
    """What waits is due, however little, once `held` states, or needs of states, are kept: each takes memory."""

    held: int

    def reached(self, states: int, needs: int) -> bool:
        """Whether there are too many."""
        return states + needs >= self.held


@dataclass(frozen=True, slots=True)
class BackpressureLimit:
    """Reading is far enough ahead once `batches` whole batches of `batch_bytes` wait or are being landed.

    More would make Spark no faster, and has the disk write what is about to be deleted.
    """

    batch_bytes: int
    batches: int

    def reached(self, waiting: Iterable[int], landing: int) -> bool:
        """Whether reading should wait; `waiting` has the bytes of each stream that no batch has taken yet.

        What is landing does not count while no whole batch waits.
        """
        whole = sum(size // self.batch_bytes for size in waiting)
        return whole > 0 and whole + landing >= self.batches
