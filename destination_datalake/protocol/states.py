"""Determine which streams a STATE message covers, and when a sync can emit the message.

This module does not interpret the content of a state.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from destination_datalake.protocol.catalog import StreamDescriptor, StreamId
from destination_datalake.protocol.json_text import decode, members, object_of


class InvalidState(Exception):
    """Raised for a STATE message that violates the protocol. The text of the exception never quotes the state."""


@dataclass(frozen=True, slots=True)
class State:
    """A STATE line as received, and the stream that the state covers.

    For a global state, which covers all streams, `stream` is None.
    """

    line: bytes
    stream: StreamId | None


def parse_state(line: bytes) -> State:
    """Return a STATE line with the stream that the state covers. Does not decode the content of the state.

    A state without a type covers the stream in its member `stream`. If this member is missing too, the state is a
    LEGACY state, which covers all streams. Raises InvalidState if the line violates the protocol or is not UTF-8. The
    sync must write the line to stdout, and stdout must contain only JSON.
    """
    try:
        str(line, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidState(f"a STATE with invalid UTF-8 (byte {error.start + 1})") from None
    try:
        state = members(members(line)["state"])
        kind = decode(state["type"], str | None) if "type" in state else None  # type: ignore[arg-type]
        if kind == "STREAM" or (kind is None and _present(state, "stream")):
            return State(line, decode(members(state["stream"])["stream_descriptor"], StreamDescriptor).id)
    except msgspec.DecodeError as error:
        raise InvalidState(f"an invalid STATE: {error}") from None
    except KeyError as error:
        raise InvalidState(f"a STATE without the member {error}") from None
    if kind not in (None, "GLOBAL", "LEGACY"):
        raise InvalidState(f"a STATE of the unknown type {kind[:50]!r}")
    return State(line, None)


def _present(state: Mapping[str, msgspec.Raw], key: str) -> bool:
    return key in state and bytes(state[key]) != b"null"


def with_statistics(line: bytes, written: int, rejected: int = 0) -> bytes:
    """Return the STATE line with `destinationStats` set. All other members keep their bytes.

    `written` becomes `recordCount`, and `rejected` becomes `rejectedRecordCount`. If `rejected` is 0, omits
    `rejectedRecordCount`. The platform compares the sum of both counts with the source's count. The counts are floats,
    as the protocol's schema requires.
    """
    rejected_count = f',"rejectedRecordCount":{float(rejected)}' if rejected else ""
    statistics = f'{{"recordCount":{float(written)}{rejected_count}}}'.encode()
    message = members(line)
    state = members(message["state"])
    state["destinationStats"] = msgspec.Raw(statistics)
    message["state"] = msgspec.Raw(object_of(state))
    return object_of(message)


# --- The ledger -----------------------------------------------------------------------------------------------------


class StoredLine(Protocol):
    """A stored STATE line, in memory or on disk."""

    def read(self) -> bytes:
        """Return the line. Do not call this method after `release`."""

    def release(self) -> None:
        """Free the space that the line occupies."""


@dataclass(slots=True, eq=False)
class _Progress:
    """The progress of one stream, in numbers of records.

    - `committed`: the number of records that are committed without a gap, counted from the first record.
    - `ahead`: the commits after a gap. Maps the number of each commit's first record to the commit's number of records.
    - `acknowledged`: the number of records that due states cover.
    - `rejected`: the number of stored rejects that no state has reported yet.
    - `awaited`: the held states in order, each with the number of records that must be committed before it can be
      emitted.
    """

    received: int = 0
    committed: int = 0
    acknowledged: int = 0
    rejected: int = 0
    failed: bool = False
    ahead: dict[int, int] = field(default_factory=dict)
    awaited: deque[tuple[int, _Held]] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _Held:
    """A held state.

    `scope` is the state's stream, or None for a global state. `needs` contains, for each stream, the number of records
    that the state covers. `pending` is the number of streams in which not all of these records are committed.
    """

    scope: StreamId | None
    line: StoredLine
    needs: list[tuple[_Progress, int]]
    pending: int = 0
    due: DueState | None = None


@dataclass(frozen=True, slots=True)
class DueState:
    """A state that can be emitted. `written` and `rejected` count the records that no earlier state covers."""

    line: StoredLine
    written: int
    rejected: int


class StateLedger:
    """Holds each state until all records that it covers are committed. Not thread-safe.

    Counts received and committed records per stream. `held` is the number of held states. `needs` is the sum, over the
    held states, of the number of streams that each state covers. `released_by_stream` maps each stream to its number of
    released states, and None to the number of released global states.

    The run time of a call does not depend on the number of streams, only on the number of changes. The ledger needs no
    clock, because a state is never older than the oldest uncommitted record before it, and batches limit the age of
    records.
    """

    def __init__(self, streams: Iterable[StreamId], store: Callable[[bytes], StoredLine]) -> None:
        self._progress = {stream: _Progress() for stream in streams}
        self._store = store
        self._held: dict[StreamId | None, deque[_Held]] = {}
        self._read_since_global: dict[StreamId, _Progress] = {}
        self._due: deque[_Held] = deque()
        self._failed: list[_Progress] = []
        self._globals_seen = False
        # Set when new global states can no longer become due: for each stream, the number of records that the remaining
        # held global states cover.
        self._last_covered: dict[int, int] | None = None
        self.released_by_stream: Counter[StreamId | None] = Counter()
        self.held = 0
        self.needs = 0

    def record(self, stream: StreamId, count: int) -> None:
        """Count `count` more received records of a stream."""
        progress = self._progress[stream]
        progress.received += count
        self._read_since_global[stream] = progress
        if progress.failed and not self.is_blocked:
            self._drop_impossible_globals()

    def received(self, stream: StreamId) -> int:
        """Return the number of records of the stream that the sync has received."""
        return self._progress[stream].received

    def committed(self, stream: StreamId) -> int:
        """Return the number of the stream's records that are committed without a gap, counted from the first one."""
        return self._progress[stream].committed

    def hold(self, state: State) -> None:
        """Hold a state until all records that it covers are committed. These are records received before the state.

        If the sync can no longer commit these records, drops the state. Raises the errors of `store`, such as
        DiskFailed.
        """
        if state.stream is None:
            # The ledger releases global states in order. A global state therefore needs to cover only the streams that
            # had records since the last global state.
            covered = list(self._read_since_global.values())
            self._read_since_global.clear()
            self._globals_seen = True
            if self._last_covered is None:
                self._drop_impossible_globals()
            if self._last_covered is not None:
                return
        else:
            covered = [self._progress[state.stream]]
            if covered[0].failed:
                return
        held = _Held(state.stream, self._store(state.line), [(progress, progress.received) for progress in covered])
        for progress, needed in held.needs:
            if needed > progress.committed:
                progress.awaited.append((needed, held))
                held.pending += 1
        self.held += 1
        self.needs += len(held.needs)
        queue = self._held.setdefault(state.stream, deque())
        queue.append(held)
        self._move_due(queue)

    def commit(self, stream: StreamId, first: int, count: int, rejected: int = 0) -> None:
        """Mark the records `first` to `first + count - 1` of a stream as committed. The first record is number 0.

        Commits may come in any order. `rejected` is the number of these records that became stored rejects instead of
        rows.
        """
        progress = self._progress[stream]
        progress.rejected += rejected
        progress.ahead[first] = count
        while progress.committed in progress.ahead:
            progress.committed += progress.ahead.pop(progress.committed)
        while progress.awaited and progress.awaited[0][0] <= progress.committed:
            progress.awaited.popleft()[1].pending -= 1
        # The commit can complete states of this stream and global states.
        for scope in (stream, None):
            if scope in self._held:
                self._move_due(self._held[scope])

    def fail(self, stream: StreamId) -> None:
        """Mark a stream as failed, and drop its states. Also drop global states that cover its uncommitted records.

        The sync commits no further records of a failed stream, so it could never emit these states.
        """
        progress = self._progress[stream]
        progress.failed = True
        self._failed.append(progress)
        self._drop(self._held.get(stream, deque()), 0)
        self._drop_impossible_globals()

    @property
    def is_blocked(self) -> bool:
        """Whether no more states can be emitted: a stream has failed, and the source sends only global states."""
        return self._last_covered is not None and all(scope is None for scope in self._held)

    def can_acknowledge(self, stream: StreamId, record: int) -> bool:
        """Return whether the sync can still emit a state that covers this record. The first record is number 0."""
        progress = self._progress[stream]
        if progress.failed:
            return False
        return self._last_covered is None or stream in self._held or record < self._last_covered.get(id(progress), 0)

    def due(self) -> DueState | None:
        """Return the next state to emit, or None. Returns the same state until `release` is called."""
        if not self._due:
            return None
        held = self._due[0]
        # Compute the counts once, when the state is first in line: `_acknowledge` assigns each record to one state.
        if held.due is None:
            held.due = DueState(held.line, *self._acknowledge(held.needs))
        return held.due

    def release(self) -> None:
        """Remove the state that `due` returned. Call this method after writing the state."""
        held = self._due.popleft()
        self._release(held)
        self.released_by_stream[held.scope] += 1

    def _move_due(self, queue: deque[_Held]) -> None:
        """Make states due, from the first in the queue up to a state that covers an uncommitted record."""
        while queue and not queue[0].pending:
            self._due.append(queue.popleft())

    def _acknowledge(self, needs: list[tuple[_Progress, int]]) -> tuple[int, int]:
        """Return the numbers of written and of rejected records that a state covers and no earlier state covers.

        The ledger does not know which records of a batch were rejected. The first states after the batch therefore
        report the rejects.
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

    def _drop_impossible_globals(self) -> None:
        """Drop global states that cover uncommitted records of failed streams. These records are never committed."""
        lost = [progress for progress in self._failed if progress.received > progress.committed]
        if not self._globals_seen or not lost:
            return
        queue = self._held.get(None, deque())
        # `awaited` contains exactly the states that need records which are not committed yet.
        impossible = {id(held) for progress in lost for _, held in progress.awaited}
        first = next((index for index, held in enumerate(queue) if id(held) in impossible), len(queue))
        self._drop(queue, first)
        # The entries of later states replace those of earlier ones, because later states cover more records.
        self._last_covered = {id(progress): needed for held in queue for progress, needed in held.needs}

    def _drop(self, queue: deque[_Held], first: int) -> None:
        while len(queue) > first:
            # A dropped global state may remain in the `awaited` of other streams, where its `pending` has no more
            # effect.
            self._release(queue.pop())

    def _release(self, held: _Held) -> None:
        held.line.release()
        self.held -= 1
        self.needs -= len(held.needs)
