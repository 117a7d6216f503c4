"""STATE messages: the streams that they cover, and their release after the commit. Their content is opaque."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from destination_datalake.protocol.catalog import StreamDescriptor, StreamId
from destination_datalake.protocol.json_text import decode, members, object_of


class InvalidState(Exception):
    """A STATE message that violates the protocol. The text never contains the state."""


@dataclass(frozen=True, slots=True)
class State:
    """A STATE line as received, and the stream that it covers, or None for all streams."""

    line: bytes
    stream: StreamId | None


def parse_state(line: bytes) -> State:
    """Return a STATE line with the stream that it covers. `stream_state`, `shared_state` and `data` are not decoded.

    A state without a type is LEGACY and covers all streams, unless it has the member `stream`. Raises InvalidState,
    also for a line that is not UTF-8, because output on stdout must be JSON.
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
    """Return the STATE line with `destinationStats`. The other members of the state keep their bytes.

    `recordCount` counts written records, and `rejectedRecordCount`, if not 0, rejected ones. The platform compares the
    sum with the source's count. Both are floats, as in the protocol's schema. Existing statistics are replaced.
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
        """Return the line."""

    def release(self) -> None:
        """Free its space. It is not read again."""


@dataclass(slots=True, eq=False)
class _Progress:
    """The progress of one stream, in numbers of records.

    `committed` counts the records committed without a gap from the first one; `ahead` has commits after a gap, as first
    record and count. `acknowledged` are covered by a due state. `rejected` are durable rejects that no state has
    reported yet. `awaited` has the waiting states in order, each after the number of records that it needs.
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
    """A held state: its stream, the number of records that it covers per stream, and the number of pending streams."""

    scope: StreamId | None
    line: StoredLine
    needs: list[tuple[_Progress, int]]
    pending: int = 0
    due: DueState | None = None


@dataclass(frozen=True, slots=True)
class DueState:
    """A state that may be emitted, and the numbers of written and rejected records that it is the first to cover."""

    line: StoredLine
    written: int
    rejected: int


class StateLedger:
    """Counts records per stream and holds states until all records that they cover are committed. Not thread-safe.

    The cost of a call does not depend on the number of streams, only on the number of changes. The ledger needs no
    clock: a state is never older than the oldest uncommitted record before it, and batches limit the age of records.

    `held` is the number of held states, `needs` the sum of the streams that they wait for. `released_of` counts
    released states by stream, global ones under None.
    """

    def __init__(self, streams: Iterable[StreamId], store: Callable[[bytes], StoredLine]) -> None:
        self._progress = {stream: _Progress() for stream in streams}
        self._store = store
        self._held: dict[StreamId | None, deque[_Held]] = {}
        self._read_since_global: dict[StreamId, _Progress] = {}
        self._due: deque[_Held] = deque()
        self._failed: list[_Progress] = []
        self._globals_seen = False
        # Set when no further global state can become due: the records, by stream, that held global states cover.
        self._last_covered: dict[int, int] | None = None
        self.released_of: Counter[StreamId | None] = Counter()
        self.held = 0
        self.needs = 0

    def record(self, stream: StreamId, count: int) -> None:
        """Count received records of a stream."""
        progress = self._progress[stream]
        progress.received += count
        self._read_since_global[stream] = progress
        if progress.failed and not self.is_blocked:
            self._drop_impossible_globals()

    def received(self, stream: StreamId) -> int:
        """Return the number of received records of the stream."""
        return self._progress[stream].received

    def committed(self, stream: StreamId) -> int:
        """Return the number of the stream's records committed without a gap from the first one."""
        return self._progress[stream].committed

    def hold(self, state: State) -> None:
        """Hold a state until all records received before it are committed. Drop it if that is impossible.

        Raises the store's errors.
        """
        if state.stream is None:
            # A global state is released after the previous one, so only streams with records since then matter.
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
        """Count the stream's records `first` (from 0) to `first + count - 1` as committed, in any order.

        `rejected` of them are durable rejects instead of rows.
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
        """Drop the states that can no longer become due, because no more records of the stream will be committed."""
        progress = self._progress[stream]
        progress.failed = True
        self._failed.append(progress)
        self._drop(self._held.get(stream, deque()), 0)
        self._drop_impossible_globals()

    @property
    def is_blocked(self) -> bool:
        """Whether no further state can become due: a stream has failed, and the source sends only global states."""
        return self._last_covered is not None and all(scope is None for scope in self._held)

    def can_acknowledge(self, stream: StreamId, record: int) -> bool:
        """Return whether a state may still cover the stream's record with this number (from 0)."""
        progress = self._progress[stream]
        if progress.failed:
            return False
        return self._last_covered is None or stream in self._held or record < self._last_covered.get(id(progress), 0)

    def due(self) -> DueState | None:
        """Return the next state to emit, in order per stream. Returns the same state until it is released."""
        if not self._due:
            return None
        held = self._due[0]
        if held.due is None:
            held.due = DueState(held.line, *self._acknowledge(held.needs))
        return held.due

    def release(self) -> None:
        """Remove the due state after it was written."""
        held = self._due.popleft()
        self._release(held)
        self.released_of[held.scope] += 1

    def _move_due(self, queue: deque[_Held]) -> None:
        """Move states without pending records to the due ones."""
        while queue and not queue[0].pending:
            self._due.append(queue.popleft())

    def _acknowledge(self, needs: list[tuple[_Progress, int]]) -> tuple[int, int]:
        """Return the numbers of written and rejected records that these needs are the first to cover.

        The positions of rejected records in a batch are not known, so the first states after it report them.
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
        """Drop global states that cover records of failed streams, which will not be committed."""
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
