"""The state ledger: decides when a STATE may go out (protocol: State Principles).

A STATE says "everything I sent before this is yours now". It may be echoed once all records before it are committed:
of its own stream for STREAM, of all streams for GLOBAL and LEGACY. `record` counts what was read, `hold` keeps a state
back, `due` gives the next one that a commit has made true, and `release` lets go of it once it is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.states import State


class StoredLine(Protocol):
    """A STATE line that is kept somewhere."""

    def read(self) -> bytes:
        """Return the line."""

    def release(self) -> None:
        """Give back its space; nobody will read it again."""


@dataclass(slots=True, eq=False)
class _Progress:
    """One stream's records: how many were read, how many of the first of them are committed, and what waits.

    `rejected` of the committed ones are no rows, and no state has covered them yet. `marks` are what states wait for,
    in order: a number of records, and the state.
    """

    received: int = 0
    committed: int = 0
    acknowledged: int = 0
    rejected: int = 0
    failed: bool = False
    waiting: dict[int, int] = field(default_factory=dict)
    marks: deque[tuple[int, _Held]] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _Held:
    """A state, the records it speaks for, by stream, and of how many streams some are not committed yet."""

    line: StoredLine
    needs: list[tuple[_Progress, int]]
    pending: int = 0
    announced: DueState | None = None


@dataclass(frozen=True, slots=True)
class DueState:
    """A state that is true, and how many records it answers for that no earlier state has: written, and rejected."""

    line: StoredLine
    written: int
    rejected: int


class StateLedger:
    """Counts records per stream and holds states until they are true. Not thread-safe: its owner locks.

    Every call costs as much as it changes, however many streams there are. It need not know how long a state waits:
    whatever it waits for is records that came before it, so it is never older than the oldest record that is not
    committed, and those are cut into batches by their age.
    """

    def __init__(self, streams: Iterable[StreamId], keep: Callable[[bytes], StoredLine]) -> None:
        self._progress = {stream: _Progress() for stream in streams}
        self._keep = keep
        self._held: dict[StreamId | None, deque[_Held]] = {}
        self._read_since_global: dict[StreamId, _Progress] = {}
        self._due: deque[_Held] = deque()
        self._failed: list[_Progress] = []
        self._globals_seen = False
        self._covered: dict[int, int] | None = None
        self.released = 0
        self.held = 0
        self.needs = 0

    def record(self, stream: StreamId, count: int) -> None:
        """Count records read of a stream."""
        progress = self._progress[stream]
        progress.received += count
        self._read_since_global[stream] = progress
        if progress.failed and not self.is_blocked:
            self._end_globals()

    def received(self, stream: StreamId) -> int:
        """How many records of the stream were read so far."""
        return self._progress[stream].received

    def committed(self, stream: StreamId) -> int:
        """How many records of the stream are committed, counted from its first one without a gap."""
        return self._progress[stream].committed

    def hold(self, state: State) -> None:
        """Keep a state until all records read before it are committed; drop one that cannot become true."""
        if state.stream is None:
            # A state for all comes after the one before it: what was read before that need not be looked at again.
            concerned = list(self._read_since_global.values())
            self._read_since_global.clear()
            self._globals_seen = True
            if self._covered is None:
                self._end_globals()
            if self._covered is not None:
                return
        else:
            concerned = [self._progress[state.stream]]
            if concerned[0].failed:
                return
        held = _Held(self._keep(state.line), [(progress, progress.received) for progress in concerned])
        for progress, needed in held.needs:
            if needed > progress.committed:
                progress.marks.append((needed, held))
                held.pending += 1
        self.held += 1
        self.needs += len(held.needs)
        queue = self._held.setdefault(state.stream, deque())
        queue.append(held)
        self._settle(queue)

    def commit(self, stream: StreamId, first: int, count: int, rejected: int = 0) -> None:
        """Note that the stream's records number `first` (from 0) to `first + count - 1` are committed, in any order.

        `rejected` of them are no rows, but durable among the rejects.
        """
        progress = self._progress[stream]
        progress.rejected += rejected
        progress.waiting[first] = count
        while progress.committed in progress.waiting:
            progress.committed += progress.waiting.pop(progress.committed)
        while progress.marks and progress.marks[0][0] <= progress.committed:
            progress.marks.popleft()[1].pending -= 1
        for scope in (stream, None):
            if scope in self._held:
                self._settle(self._held[scope])

    def fail(self, stream: StreamId) -> None:
        """Note that no more of the stream will be committed: drop the states that cannot become true any more."""
        progress = self._progress[stream]
        progress.failed = True
        self._failed.append(progress)
        self._drop(self._held.get(stream, deque()), 0)
        self._end_globals()

    @property
    def is_blocked(self) -> bool:
        """Whether a stream has failed and the source's states speak for all streams: no further one can come true."""
        return self._covered is not None and all(scope is None for scope in self._held)

    def can_acknowledge(self, stream: StreamId, first: int) -> bool:
        """Whether a state may yet speak for the stream's record number `first` (from 0): if not, it need not land."""
        progress = self._progress[stream]
        if progress.failed:
            return False
        return self._covered is None or stream in self._held or first < self._covered.get(id(progress), 0)

    def due(self) -> DueState | None:
        """The next state that is true, in order for each stream; the same one until it is released."""
        if not self._due:
            return None
        held = self._due[0]
        if held.announced is None:
            held.announced = DueState(held.line, *self._acknowledge(held.needs))
        return held.announced

    def release(self) -> None:
        """Let go of the state that is due: it is written."""
        self._release(self._due.popleft())
        self.released += 1

    def _settle(self, queue: deque[_Held]) -> None:
        """Move the states that are true to those that are due."""
        while queue and not queue[0].pending:
            self._due.append(queue.popleft())

    def _acknowledge(self, needs: list[tuple[_Progress, int]]) -> tuple[int, int]:
        """How many records these needs cover that no earlier state has covered: written, and rejected.

        Which of a batch's records were rejected nobody knows here, so the first states after it tell of them.
        """
        total = total_rejected = 0
        for progress, needed in needs:
            covered = max(0, needed - progress.acknowledged)
            rejected = min(covered, progress.rejected)
            progress.acknowledged += covered
            progress.rejected -= rejected
            total += covered
            total_rejected += rejected
        return total - total_rejected, total_rejected

    def _end_globals(self) -> None:
        """Once a failed stream has records that will not land, drop the states for all that come after them."""
        lost = [progress for progress in self._failed if progress.received > progress.committed]
        if not self._globals_seen or not lost:
            return
        queue = self._held.get(None, deque())
        waiting_in_vain = {id(held) for progress in lost for _, held in progress.marks}
        first = next((index for index, held in enumerate(queue) if id(held) in waiting_in_vain), len(queue))
        self._drop(queue, first)
        self._covered = {id(progress): needed for held in queue for progress, needed in held.needs}

    def _drop(self, queue: deque[_Held], first: int) -> None:
        while len(queue) > first:
            self._release(queue.pop())

    def _release(self, held: _Held) -> None:
        held.line.release()
        self.held -= 1
        self.needs -= len(held.needs)
