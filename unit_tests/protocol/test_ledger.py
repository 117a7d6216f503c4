"""The state ledger: a state goes out when it has become true, in order, with the records it covers."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.ledger import StateLedger
from destination_datalake.protocol.states import State, with_statistics

ORDERS, ITEMS = StreamId(None, "orders"), StreamId("shop", "items")
STREAMS = (ORDERS, ITEMS)


@dataclass(eq=False)
class Kept:
    """A line in memory; `kept` has those that nobody has forgotten."""

    line: bytes
    kept: list[Kept]

    def read(self) -> bytes:
        return self.line

    def release(self) -> None:
        self.kept.remove(self)


class Ledger(StateLedger):
    """A ledger whose states can all be taken at once, as if somebody wrote them."""

    def __init__(self, streams: tuple[StreamId, ...] = STREAMS) -> None:
        self.kept: list[Kept] = []
        super().__init__(streams, self._remember)

    def _remember(self, line: bytes) -> Kept:
        self.kept.append(Kept(line, self.kept))
        return self.kept[-1]

    def write(self) -> list[bytes]:
        lines = []
        while (due := self.due()) is not None:
            lines.append(with_statistics(due.line.read(), due.written, due.rejected))
            self.release()
        return lines


def numbered(number: int, stream: StreamId | None) -> State:
    return State(f'{{"type":"STATE","state":{{"id":{number}}}}}'.encode(), stream)


def ledger() -> Ledger:
    return Ledger()


def told(lines: list[bytes]) -> list[tuple[int, float]]:
    """The numbers of released states and how many records they answer for, rejected ones included."""
    return [(number, written + rejected) for number, written, rejected in told_apart(lines)]


def told_apart(lines: list[bytes]) -> list[tuple[int, float, float]]:
    """The numbers of released states and the counts they carry: of records written, and rejected."""
    states = [json.loads(line)["state"] for line in lines]
    return [
        (state["id"], state["destinationStats"]["recordCount"], state["destinationStats"].get("rejectedRecordCount", 0))
        for state in states
    ]


# --- When


def test_a_state_waits_for_the_records_before_it_and_for_no_others() -> None:
    states = ledger()
    states.record(ORDERS, 10)
    states.hold(numbered(1, ORDERS))
    states.record(ORDERS, 5)

    states.commit(ORDERS, 0, 9)
    assert states.write() == []
    states.commit(ORDERS, 9, 3)
    assert told(states.write()) == [(1, 10.0)]
    assert (states.released, states.held) == (1, 0)


def test_a_state_before_any_record_goes_out_at_once() -> None:
    states = ledger()
    for number, stream in enumerate([ORDERS, None]):
        states.hold(numbered(number, stream))

    assert told(states.write()) == [(0, 0.0), (1, 0.0)]


def test_a_state_of_one_stream_does_not_wait_for_another() -> None:
    states = ledger()
    states.record(ITEMS, 100)
    states.record(ORDERS, 1)
    states.hold(numbered(1, ORDERS))
    states.commit(ORDERS, 0, 1)

    assert told(states.write()) == [(1, 1.0)]


def test_a_state_for_all_waits_for_every_stream_and_counts_them_together() -> None:
    states = ledger()
    states.record(ITEMS, 3)
    states.record(ORDERS, 4)
    states.hold(numbered(1, None))

    states.commit(ORDERS, 0, 4)
    assert states.write() == []
    states.commit(ITEMS, 0, 3)
    assert told(states.write()) == [(1, 7.0)]


def test_many_states_in_a_row_count_their_records_once() -> None:
    states = ledger()
    states.record(ORDERS, 4)
    for number in (1, 2, 3):
        states.hold(numbered(number, ORDERS))
    states.commit(ORDERS, 0, 4)

    assert told(states.write()) == [(1, 4.0), (2, 0.0), (3, 0.0)]
    assert states.write() == []


def test_rejected_records_are_told_of_once_by_the_first_states_that_cover_as_many() -> None:
    states = ledger()
    for number in (1, 2, 3):
        states.record(ORDERS, 2)
        states.hold(numbered(number, ORDERS))
    states.commit(ORDERS, 0, 6, 3)
    states.record(ORDERS, 1)
    states.hold(numbered(4, ORDERS))
    states.commit(ORDERS, 6, 1)

    assert told_apart(states.write()) == [(1, 0.0, 2.0), (2, 1.0, 1.0), (3, 2.0, 0), (4, 1.0, 0)]


def test_a_state_for_all_tells_of_every_stream_s_rejected_records() -> None:
    states = ledger()
    for stream in (ITEMS, ORDERS):
        states.record(stream, 3)
        states.commit(stream, 0, 3, 1)
    states.hold(numbered(1, None))

    assert told_apart(states.write()) == [(1, 4.0, 2.0)]


# --- What is kept until when


def test_a_state_stays_in_the_ledger_until_it_is_written() -> None:
    states = ledger()
    states.hold(numbered(1, ORDERS))

    assert states.due() == states.due() is not None
    assert (states.held, states.released, len(states.kept)) == (1, 0, 1)
    states.release()
    assert (states.held, states.released, states.kept) == (0, 1, [])


def test_what_a_state_tells_does_not_change_while_it_is_being_written() -> None:
    states = ledger()
    states.record(ORDERS, 2)
    states.hold(numbered(1, ORDERS))
    states.commit(ORDERS, 0, 2)
    due = states.due()
    assert due is not None

    states.record(ORDERS, 2)
    states.hold(numbered(2, ORDERS))
    states.commit(ORDERS, 2, 2, 2)

    assert (due.written, due.rejected) == (2, 0)
    assert told_apart(states.write()) == [(1, 2.0, 0), (2, 0.0, 2.0)]


def test_a_state_for_all_keeps_only_the_streams_read_since_the_one_before_it() -> None:
    streams = tuple(StreamId(None, str(number)) for number in range(1000))
    states = Ledger(streams)
    for stream in streams:
        states.record(stream, 1)
    for number in range(100):
        states.record(streams[0], 1)
        states.hold(numbered(number, None))

    assert (states.held, states.needs) == (100, 1000 + 99)
    for stream in streams[1:]:
        states.commit(stream, 0, 1)
    assert states.write() == []
    states.commit(streams[0], 0, 101)
    assert [number for number, _ in told(states.write())] == list(range(100))
    assert (states.held, states.needs) == (0, 0)


# --- Failed streams


def test_states_of_a_failed_stream_are_dropped_and_those_of_others_are_not() -> None:
    states = ledger()
    for number, stream in enumerate([ORDERS, ITEMS, ORDERS]):
        states.record(stream, 1)
        states.hold(numbered(number, stream))

    states.fail(ORDERS)
    states.hold(numbered(3, ORDERS))

    states.commit(ITEMS, 0, 1)
    assert told(states.write()) == [(1, 1.0)]
    assert (states.held, states.kept, states.is_blocked) == (0, [], False)
    assert not states.can_acknowledge(ORDERS, 2)
    assert states.can_acknowledge(ITEMS, 1)


def test_a_state_that_was_true_before_its_stream_failed_still_goes_out() -> None:
    states = ledger()
    states.record(ORDERS, 1)
    states.hold(numbered(1, ORDERS))
    states.commit(ORDERS, 0, 1)

    states.fail(ORDERS)

    assert told(states.write()) == [(1, 1.0)]


def test_once_a_stream_has_failed_only_states_for_all_from_before_its_lost_records_can_come_true() -> None:
    states = ledger()
    states.record(ITEMS, 2)
    states.hold(numbered(1, None))
    states.record(ORDERS, 1)
    states.record(ITEMS, 2)
    states.hold(numbered(2, None))
    states.record(ITEMS, 2)
    states.hold(numbered(3, None))

    states.fail(ORDERS)

    assert states.is_blocked
    assert (states.held, len(states.kept)) == (1, 1)
    assert states.can_acknowledge(ITEMS, 1)
    assert not states.can_acknowledge(ITEMS, 2)
    states.commit(ITEMS, 0, 2)
    assert told(states.write()) == [(1, 2.0)]


def test_states_for_all_go_on_while_a_failed_stream_has_lost_nothing() -> None:
    states = ledger()
    states.hold(numbered(1, None))
    states.fail(ORDERS)
    states.record(ITEMS, 1)
    states.hold(numbered(2, None))
    states.commit(ITEMS, 0, 1)
    assert not states.is_blocked

    assert [number for number, _ in told(states.write())] == [1, 2]
    states.record(ORDERS, 1)
    assert states.is_blocked


def test_a_first_state_for_all_after_a_stream_has_lost_records_is_futile() -> None:
    states = ledger()
    states.record(ORDERS, 1)
    states.fail(ORDERS)
    assert not states.is_blocked

    states.hold(numbered(1, None))

    assert states.is_blocked
    assert states.write() == []


# --- The law, for whatever order things happen in


@dataclass(frozen=True)
class Sent:
    """A state that was sent, and how many records of each stream stood before it."""

    number: int
    stream: StreamId | None
    before: dict[StreamId, int]


@st.composite
def syncs(draw: st.DrawFn) -> list[tuple[str, StreamId | None, int]]:
    """What happens in a sync: records arrive, states arrive, batches (of records that arrived) are committed."""
    happenings = st.tuples(
        st.sampled_from(["record", "record", "state", "commit"]),
        st.sampled_from([*STREAMS, None]),
        st.integers(1, 5),
    )
    return draw(st.lists(happenings, max_size=60))


@given(sync=syncs(), random=st.randoms(use_true_random=False))
def test_states_go_out_in_order_only_when_true_and_count_every_record_once(
    sync: list[tuple[str, StreamId | None, int]], random: Random
) -> None:
    states = ledger()
    received: dict[StreamId, int] = defaultdict(int)
    batched: dict[StreamId, int] = defaultdict(int)
    batches: list[tuple[StreamId, int, int]] = []
    committed: dict[StreamId, set[int]] = defaultdict(set)
    sent: list[Sent] = []
    released: list[tuple[int, float]] = []

    def commit_one() -> None:
        stream, first, count = batches.pop(random.randrange(len(batches)))
        committed[stream] |= set(range(first, first + count))
        states.commit(stream, first, count, random.randint(0, count))
        released.extend(told(states.write()))

    def check() -> None:
        for each in sent:
            is_true = all(set(range(count)) <= committed[stream] for stream, count in each.before.items())
            assert (each.number in {number for number, _ in released}) == is_true

    for what, stream, count in sync:
        if what == "state":
            before = {s: received[s] for s in (STREAMS if stream is None else [stream])}
            sent.append(Sent(len(sent), stream, before))
            states.hold(numbered(len(sent) - 1, stream))
            released.extend(told(states.write()))
        elif stream is not None and what == "record":
            assert states.received(stream) == received[stream]
            states.record(stream, count)
            received[stream] += count
        elif stream is not None and received[stream] > batched[stream]:
            batches.append((stream, batched[stream], received[stream] - batched[stream]))
            batched[stream] = received[stream]
            if random.random() < 0.5:
                commit_one()
        check()
    while batches:
        commit_one()
        check()
    for stream in STREAMS:
        if received[stream] > batched[stream]:
            batches.append((stream, batched[stream], received[stream] - batched[stream]))
            commit_one()
        assert states.committed(stream) == received[stream]
    check()

    by_scope = defaultdict(list)
    for number, _ in released:
        by_scope[sent[number].stream].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_scope.values())
    assert sorted(number for number, _ in released) == list(range(len(sent)))
    covered = {stream: max((each.before.get(stream, 0) for each in sent), default=0) for stream in STREAMS}
    assert sum(count for _, count in released) == sum(covered.values())
    assert (states.released, states.held) == (len(sent), 0)
