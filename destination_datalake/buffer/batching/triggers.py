"""Triggers say when a batch is due, limits when reading must wait (back-pressure). Each is a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizeTrigger:
    """A batch is due once `batch_bytes` of a stream wait."""

    batch_bytes: int

    def due(self, waiting: int) -> bool:
        """Whether `waiting` bytes make a batch."""
        return waiting >= self.batch_bytes


@dataclass(frozen=True, slots=True)
class AgeTrigger:
    """A batch is due once a record, or a state that needs it, has waited for `seconds`."""

    seconds: float

    def due(self, since: float | None, now: float) -> bool:
        """Whether what has waited since `since` (None: nothing) is old enough at `now`."""
        return since is not None and now - since >= self.seconds

    def remaining(self, since: float, now: float) -> float:
        """Return the seconds until it is due."""
        return max(0.0, since + self.seconds - now)


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """At most about `max_bytes` wait on disk: once reached, everything lands, however little, before more is read."""

    max_bytes: int

    def reached(self, used: int) -> bool:
        """Whether `used` bytes fill the disk budget."""
        return used >= self.max_bytes


@dataclass(frozen=True, slots=True)
class HeldStatesLimit:
    """At most about `max_held` states, and streams that they wait for, are held: each of them takes memory.

    Once reached, everything lands, however little, before more is read.
    """

    max_held: int

    def reached(self, states: int, needs: int) -> bool:
        """Whether so many states, waiting for so many streams in all, are too many."""
        return states + needs >= self.max_held


@dataclass(frozen=True, slots=True)
class BackpressureLimit:
    """At most about `batches` whole batches of `batch_bytes` wait or are being landed.

    Reading further ahead would not make Spark faster, and would write to disk what is about to be deleted.
    """

    batch_bytes: int
    batches: int

    def reached(self, waiting: Iterable[int], landing: int) -> bool:
        """Whether reading must wait; `waiting` has the bytes of each stream that no batch has taken yet.

        The `landing` jobs count only while a whole batch waits.
        """
        whole = sum(size // self.batch_bytes for size in waiting)
        return whole > 0 and whole + landing >= self.batches
