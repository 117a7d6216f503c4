"""STATE messages: the streams that they cover, and their release after the commit. Their content is not interpreted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from destination_datalake.protocol.catalog import StreamDescriptor, StreamId
from destination_datalake.protocol.json_text import decode, members, object_of


class InvalidState(Exception):
    """Raised for a STATE message that violates the protocol. The text of the exception never contains the state."""


@dataclass(frozen=True, slots=True)
class State:
    """A STATE line as received, and the stream that the state covers, or None for all streams."""

    line: bytes
    stream: StreamId | None


def parse_state(line: bytes) -> State:
    """Return a STATE line with the stream that it covers. `stream_state`, `shared_state` and `data` are not decoded.

    A state without a type is a LEGACY state, which covers all streams, unless it has the member `stream`. Raises
    InvalidState, also for a line that is not UTF-8, because output on stdout must be JSON.
    """
    try:
        str(line, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidState(f"a STATE that is not UTF-8 (byte {error.start + 1})") from None
    try:
        state = members(members(line)["state"])
        kind = decode(state["type"], str | None) if "type" in state else None  # type: ignore[arg-type]
        if kind == "STREAM" or (kind is None and _present(state, "stream")):
            return State(line, decode(members(state["stream"])["stream_descriptor"], StreamDescriptor).id)
    except msgspec.DecodeError as error:
        raise InvalidState(f"a STATE that cannot be read: {error}") from None
    except KeyError as error:
        raise InvalidState(f"a STATE without the member {error}") from None
    if kind not in (None, "GLOBAL", "LEGACY"):
        raise InvalidState(f"a STATE of the unknown type {kind[:50]!r}")
    return State(line, None)


def _present(state: Mapping[str, msgspec.Raw], key: str) -> bool:
    return key in state and bytes(state[key]) != b"null"


def with_statistics(line: bytes, written: int, rejected: int = 0) -> bytes:
    """Return the STATE line with `destinationStats` added or replaced. The other members of the state keep their bytes.

    `recordCount` is the number of written records. `rejectedRecordCount` is the number of rejected records, and is
    omitted if 0. The platform compares their sum with the source's count. Both are floats, as in the protocol's schema.
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
    """A stored STATE line."""

    def read(self) -> bytes:
        """Return the STATE line."""

    def release(self) -> None:
        """Free the space of the line. It must not be read afterwards."""


@dataclass(slots=True, eq=False)
class _Progress:
    """The progress of one stream, in numbers of records.

    `committed` counts the records that are committed without a gap from the first one. `ahead` contains the commits
    after a gap: for each commit, the number of its first record, and the count. `acknowledged` counts the records that
    due states cover. `rejected` counts durable rejects that no state has reported yet. `awaited` contains the held
    states in order, each with the number of records that it needs.
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

    `scope` is the state's stream, or None for a global state. `needs` contains the number of records that the state
    covers in each stream. `pending` is the number of streams in which some of these records are not committed.
    """

    scope: StreamId | None
    line: StoredLine
    needs: list[tuple[_Progress, int]]
    pending: int = 0
    due: DueState | None = None


@dataclass(frozen=True, slots=True)
class DueState:
    """A state that may be emitted. `written` and `rejected` count its records that no earlier state has covered."""

    line: StoredLine
    written: int
    rejected: int


class StateLedger:
    """Counts records per stream, and holds each state until all records that it covers are committed. Not thread-safe.

    The cost of a call depends on the number of changes, not on the number of streams. The ledger needs no clock: a
    state is never older than the oldest uncommitted record before it, and batches limit the age of records.

    `held` is the number of held states. `needs` is the number of streams that they cover, summed over all held states.
    `released_of` counts the released states by stream, and global states under None.
    """

    def __init__(self, streams: Iterable[StreamId], store: Callable[[bytes], StoredLine]) -> None:
        self._progress = {stream: _Progress() for stream in streams}
        self._store = store
        self._held: dict[StreamId | None, deque[_Held]] = {}
        self._read_since_global: dict[StreamId, _Progress] = {}
        self._due: deque[_Held] = deque()
        self._failed: list[_Progress] = []
        self._globals_seen = False
        # This is set when no new global state can become due. It is the number of records of each stream that the held
        # global states cover.
        self._last_covered: dict[int, int] | None = None
        self.released_of: Counter[StreamId | None] = Counter()
        self.held = 0
        self.needs = 0

    def record(self, stream: StreamId, count: int) -> None:
        """Count records that were received for a stream."""
        progress = self._progress[stream]
        progress.received += count
        self._read_since_global[stream] = progress
        if progress.failed and not self.is_blocked:
            self._drop_impossible_globals()

    def received(self, stream: StreamId) -> int:
        """Return the number of received records of the stream."""
        return self._progress[stream].received

    def committed(self, stream: StreamId) -> int:
        """Return how many of the stream's records are committed without a gap from the first one."""
        return self._progress[stream].committed

    def hold(self, state: State) -> None:
        """Hold a state until all records received before it are committed.

        If they can no longer be committed, drop the state.

        Raises the errors of the store that keeps the STATE lines.
        """
        if state.stream is None:
            # Global states are released in order, so a state needs only the streams with records since the previous
            # global state.
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
        """Count the records `first` to `first + count - 1` (from 0) of a stream as committed.

        Commits may be in any order. `rejected` of these records are durable rejects instead of rows.
        """
        progress = self._progress[stream]
        progress.rejected += rejected
        progress.ahead[first] = count
        while progress.committed in progress.ahead:
            progress.committed += progress.ahead.pop(progress.committed)
        while progress.awaited and progress.awaited[0][0] <= progress.committed:
            progress.awaited.popleft()[1].pending -= 1
        for scope in (stream, None):
            if scope in self._held:
                self._move_due(self._held[scope])

    def fail(self, stream: StreamId) -> None:
        """Mark a stream as failed, and drop its states.

        No more records of the stream will be committed, so global states that cover its uncommitted records are also
        dropped.
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
        """Return whether a state can still cover the stream's record with this number (from 0)."""
        progress = self._progress[stream]
        if progress.failed:
            return False
        return self._last_covered is None or stream in self._held or record < self._last_covered.get(id(progress), 0)

    def due(self) -> DueState | None:
        """Return the next state to emit, or None if no state is due. Returns the same state until it is released."""
        if not self._due:
            return None
        held = self._due[0]
        if held.due is None:
            held.due = DueState(held.line, *self._acknowledge(held.needs))
        return held.due

    def release(self) -> None:
        """Remove the state that `due` returned. Call this after writing it."""
        held = self._due.popleft()
        self._release(held)
        self.released_of[held.scope] += 1

    def _move_due(self, queue: deque[_Held]) -> None:
        """Move states from the front of the queue to the due states, while all records they cover are committed."""
        while queue and not queue[0].pending:
            self._due.append(queue.popleft())

    def _acknowledge(self, needs: list[tuple[_Progress, int]]) -> tuple[int, int]:
        """Return how many written and rejected records these `needs` cover, except records that earlier states covered.

        It is unknown which records of a batch were rejected. Rejects are therefore counted in the first states after
        the batch.
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
        """Drop the global states that cover uncommitted records of failed streams.

        These records will never be committed.
        """
        lost = [progress for progress in self._failed if progress.received > progress.committed]
        if not self._globals_seen or not lost:
            return
        queue = self._held.get(None, deque())
        impossible = {id(held) for progress in lost for _, held in progress.awaited}
        first = next((index for index, held in enumerate(queue) if id(held) in impossible), len(queue))
        self._drop(queue, first)
        self._last_covered = {id(progress): needed for held in queue for progress, needed in held.needs}

    def _drop(self, queue: deque[_Held], first: int) -> None:
        while len(queue) > first:
            self._release(queue.pop())

    def _release(self, held: _Held) -> None:
        held.line.release()
        self.held -= 1
        self.needs -= len(held.needs)
