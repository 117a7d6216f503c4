"""The state ledger: decides when a STATE may go out (protocol: State Principles).

A STATE says "everything I sent before this is yours now". It may be echoed once all records before it are committed:
of its own stream for STREAM, of all streams for GLOBAL and LEGACY. Three verbs: `record` counts what was read, `hold`
keeps a state back, `release` gives out those that a commit has made true, in the order they came.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from destination_datalake.protocol.catalog import StreamId


class InvalidState(Exception):
    """A STATE message without what the protocol requires of it. The text never holds the state."""


@dataclass(frozen=True, slots=True)
class State:
    """A STATE line as received, and the stream it is for; None when it speaks for all of them."""

    line: bytes
    stream: StreamId | None


class _Descriptor(msgspec.Struct):
    name: str
    namespace: str | None = None


def parse_state(line: bytes) -> State:
    """Read whom a STATE line is for. `stream_state`, `shared_state` and `data` are black boxes and stay so.

    A state without a type is LEGACY, which speaks for all streams, unless it carries a stream or a global member.
    Raises InvalidState.
    """
    try:
        members = _members(_members(line)["state"])
        kind = msgspec.json.decode(members["type"], type=str | None) if "type" in members else None
        if kind == "STREAM" or (kind is None and _present(members, "stream")):
            descriptor = msgspec.json.decode(_members(members["stream"])["stream_descriptor"], type=_Descriptor)
            return State(line, StreamId(descriptor.namespace or None, descriptor.name))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidState(f"a STATE that cannot be read: {error}") from None
    except KeyError as error:
        raise InvalidState(f"a STATE without the member {error}") from None
    if kind not in (None, "GLOBAL", "LEGACY"):
        raise InvalidState(f"a STATE of the unknown type {kind[:50]!r}")
    return State(line, None)


def _present(members: Mapping[str, msgspec.Raw], key: str) -> bool:
    return key in members and bytes(members[key]) != b"null"


def _members(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, every value spelled as received. Raises msgspec.DecodeError."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        # Python's sources spell lone surrogates and NaN, which msgspec refuses even where nobody looks at them.
        try:
            return _members_as_python_spells(bytes(text).decode("utf-8-sig"))
        except ValueError:
            raise error from None


def _members_as_python_spells(text: str) -> dict[str, msgspec.Raw]:
    """The same by Python's own JSON decoder. Raises ValueError."""
    if not isinstance(json.loads(text), dict):
        raise ValueError("not an object")
    members: dict[str, msgspec.Raw] = {}
    value_at = json.JSONDecoder().raw_decode
    place = _PUNCTUATION.match(text).end()  # type: ignore[union-attr]
    while text[place] != "}":
        key, end = value_at(text, place)
        start = _PUNCTUATION.match(text, end).end()  # type: ignore[union-attr]
        _, end = value_at(text, start)
        members[key] = msgspec.Raw(text[start:end].encode())
        place = _PUNCTUATION.match(text, end).end()  # type: ignore[union-attr]
    return members


_PUNCTUATION = re.compile(r"\s*[{:,]?\s*")


def with_statistics(line: bytes, written: int, rejected: int = 0) -> bytes:
    """The STATE line with `destinationStats` added; every other byte of the state's members is as received.

    `recordCount` is of records that were written, `rejectedRecordCount`, where there are any, of those that were not:
    the platform compares the sum with what the source sent. Both are floats, as the protocol's schema has them.
    Statistics another destination left are replaced.
    """
    more = f',"rejectedRecordCount":{float(rejected)}' if rejected else ""
    statistics = f'{{"recordCount":{float(written)}{more}}}'.encode()
    message = _members(line)
    state = _members(message["state"])
    state["destinationStats"] = msgspec.Raw(statistics)
    message["state"] = msgspec.Raw(msgspec.json.encode(state))
    return msgspec.json.encode(message)


@dataclass(slots=True)
class _Progress:
    """One stream's records: how many were read, how many of the first of them are committed, and what waits.

    `rejected` of the committed ones are no rows, and no state has told of them yet.
    """

    received: int = 0
    committed: int = 0
    acknowledged: int = 0
    rejected: int = 0
    waiting: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Held:
    line: bytes
    needs: dict[StreamId, int]


class StateLedger:
    """Counts records per stream and holds states until they are true. Not thread-safe: its owner locks.

    It need not know how long a state waits: whatever it waits for is records that came before it, so it is never older
    than the oldest record that is not committed, and those are cut into batches by their age.
    """

    def __init__(self, streams: Iterable[StreamId]) -> None:
        self._progress = {stream: _Progress() for stream in streams}
        self._held: dict[StreamId | None, deque[_Held]] = {}
        self.released = 0

    def record(self, stream: StreamId, count: int) -> None:
        """Count records read of a stream."""
        self._progress[stream].received += count

    def received(self, stream: StreamId) -> int:
        """How many records of the stream were read so far."""
        return self._progress[stream].received

    def committed(self, stream: StreamId) -> int:
        """How many records of the stream are committed, counted from its first one without a gap."""
        return self._progress[stream].committed

    def hold(self, state: State) -> None:
        """Keep a state until all records read before it are committed."""
        if state.stream is None:
            needs = {stream: progress.received for stream, progress in self._progress.items() if progress.received}
        elif state.stream in self._progress:
            needs = {state.stream: self._progress[state.stream].received}
        else:
            needs = {}
        self._held.setdefault(state.stream, deque()).append(_Held(state.line, needs))

    def commit(self, stream: StreamId, first: int, count: int, rejected: int = 0) -> None:
        """Note that the stream's records number `first` (from 0) to `first + count - 1` are committed, in any order.

        `rejected` of them are no rows, but durable among the rejects.
        """
        progress = self._progress[stream]
        progress.rejected += rejected
        progress.waiting[first] = count
        while progress.committed in progress.waiting:
            progress.committed += progress.waiting.pop(progress.committed)

    def release(self) -> list[bytes]:
        """The STATE lines that have become true, in order for each stream, with their `destinationStats`."""
        lines: list[bytes] = []
        for queue in self._held.values():
            while queue and self._is_true(queue[0]):
                held = queue.popleft()
                lines.append(with_statistics(held.line, *self._acknowledge(held.needs)))
        self.released += len(lines)
        return lines

    def held(self) -> int:
        """How many states wait."""
        return sum(len(queue) for queue in self._held.values())

    def _is_true(self, held: _Held) -> bool:
        return all(self._progress[stream].committed >= needed for stream, needed in held.needs.items())

    def _acknowledge(self, needs: dict[StreamId, int]) -> tuple[int, int]:
        """How many records these needs cover that no earlier state has covered: written, and rejected.

        Which of a batch's records were rejected nobody knows here, so the first states after it tell of them.
        """
        total = total_rejected = 0
        for stream, needed in needs.items():
            progress = self._progress[stream]
            covered = max(0, needed - progress.acknowledged)
            rejected = min(covered, progress.rejected)
            progress.acknowledged += covered
            progress.rejected -= rejected
            total += covered
            total_rejected += rejected
        return total - total_rejected, total_rejected
