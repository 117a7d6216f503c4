"""States: which streams they cover, and that they are emitted as they were received."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.states import InvalidState, State, StateLedger, parse_state, with_statistics

ORDERS, ITEMS = StreamId(None, "orders"), StreamId("shop", "items")
DEEP = "[" * 100_000 + "]" * 100_000


def state_line(state: str) -> bytes:
    return f'{{"type":"STATE","state":{state}}}'.encode()


@pytest.mark.parametrize(
    ("state", "stream"),
    [
        ('{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders"}}}', ORDERS),
        ('{"type":"STREAM","stream":{"stream_descriptor":{"name":"items","namespace":"shop"}}}', ITEMS),
        ('{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders","namespace":""}}}', ORDERS),
        ('{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders","namespace":null},"x":[]}}', ORDERS),
        ('{"stream":{"stream_descriptor":{"name":"orders"}}}', ORDERS),
        ('{"type":null,"stream":{"stream_descriptor":{"name":"orders"}}}', ORDERS),
        ('{"type":"GLOBAL","global":{"shared_state":{"lsn":1},"stream_states":[]}}', None),
        ('{"type":"GLOBAL","global":{"shared_state":{"lsn":1}}}', None),
        ('{"type":"GLOBAL","global_":{"shared_state":{"lsn":1}}}', None),
        ('{"global":{}}', None),
        ('{"type":"LEGACY","data":{"cursor":1}}', None),
        ('{"data":{"cursor":1}}', None),
        ('{"data":{"cursor":1},"stream":null}', None),
        ("{}", None),
        ('{"type":"STREAM","stream":{"stream_state":"\\ud83d","stream_descriptor":{"name":"orders"}}}', ORDERS),
        (
            '{"\\ud83d":1,"type":"STREAM","stream":{"\\udc00":1,"stream_descriptor":{"name":"orders","\\ud83d":{}}}}',
            ORDERS,
        ),
        ('{"stream_state" : [NaN], "type" : "STREAM" , "stream":{"stream_descriptor":{"name":"orders"}} }', ORDERS),
    ],
)
def test_a_state_covers_one_stream_or_all(state: str, stream: StreamId | None) -> None:
    line = state_line(state)

    assert parse_state(line) == State(line, stream)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type":"STATE"}', "without the member 'state'"),
        (b'{"type":"STATE","state":{"data":"secret\xff"}}', "with invalid UTF-8 (byte 40)"),
        (state_line("null"), "Expected `object`, got `null`"),
        (state_line('"secret"'), "Expected `object`, got `str`"),
        (state_line('{"type":"STREAM","data":"secret"}'), "without the member 'stream'"),
        (state_line('{"type":"STREAM","stream":{"secret":1}}'), "without the member 'stream_descriptor'"),
        (state_line('{"type":"STREAM","stream":{"stream_descriptor":{"secret":1}}}'), "missing required field `name`"),
        (state_line('{"type":"STREAM","stream":{"stream_descriptor":{"name":7}}}'), "Expected `str`, got `int`"),
        (state_line('{"type":7,"data":"secret"}'), "Expected `str | null`, got `int`"),
        (state_line('{"type":"' + "PER_GALAXY" * 9 + '","data":"secret"}'), "of the unknown type 'PER_GALAXYPER"),
        (state_line('{"data":"secret"'), "an invalid STATE: "),
        (state_line('{"secret":' + DEEP + "}"), "an invalid STATE: JSON is nested too deeply"),
        (b"\xff", "invalid UTF-8 (byte 1)"),
    ],
)
def test_an_invalid_state_is_refused_without_quoting_it(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidState) as refused:
        parse_state(line)

    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize(
    ("received", "emitted"),
    [
        ('{"data":{}}', '{"data":{},"destinationStats":{"recordCount":3.0}}'),
        ("{}", '{"destinationStats":{"recordCount":3.0}}'),
        (
            '{"id":7,"x":null,"big":123456789012345678901234567890,"e":1.0E5,"é":"\\u00e9\\/"}',
            '{"id":7,"x":null,"big":123456789012345678901234567890,"e":1.0E5,"é":"\\u00e9\\/",'
            '"destinationStats":{"recordCount":3.0}}',
        ),
        (
            '{"sourceStats":{"recordCount":9.0},"destinationStats":{"recordCount":1.0},"data":[ 1 , {"a" : 2} ]}',
            '{"sourceStats":{"recordCount":9.0},"destinationStats":{"recordCount":3.0},"data":[ 1 , {"a" : 2} ]}',
        ),
        (
            '{"data":{"s":"\\ud83d","n":[NaN, -Infinity]},"id":1}',
            '{"data":{"s":"\\ud83d","n":[NaN, -Infinity]},"id":1,"destinationStats":{"recordCount":3.0}}',
        ),
        (
            '{"\\ud83d":{"\\udc00":[1]},"id":1}',
            '{"\\ud83d":{"\\udc00":[1]},"id":1,"destinationStats":{"recordCount":3.0}}',
        ),
    ],
    ids=range(6),
)
def test_statistics_are_added_and_all_else_is_unchanged(received: str, emitted: str) -> None:
    assert with_statistics(state_line(received), 3) == state_line(emitted)


def test_other_members_of_the_message_are_emitted_too() -> None:
    line = b' { "type" : "STATE", "state": { }, "more": {"a": 1.50, "b": null} }\r'

    emitted = with_statistics(line, 3)

    assert emitted == b'{"type":"STATE","state":{"destinationStats":{"recordCount":3.0}},"more":{"a": 1.50, "b": null}}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(opaque=json_values, ascii_only=st.booleans(), spaced=st.booleans())
def test_opaque_values_are_emitted_byte_for_byte(opaque: object, ascii_only: bool, spaced: bool) -> None:
    separators = (" , ", " : ") if spaced else (",", ":")
    text = json.dumps(opaque, ensure_ascii=ascii_only, separators=separators)
    descriptor = '{"name":"items","namespace":"shop"}'
    line = state_line(f'{{"type":"STREAM","stream":{{"stream_state":{text},"stream_descriptor":{descriptor}}},"id":1}}')

    state = parse_state(line)

    assert state == State(line, ITEMS)
    assert with_statistics(state.line, 1) == line[:-2] + b',"destinationStats":{"recordCount":1.0}}}'


def test_a_large_count_is_a_decimal_without_exponent() -> None:
    assert b'"recordCount":12345678901.0' in with_statistics(state_line("{}"), 12_345_678_901)


# --- The ledger -----------------------------------------------------------------------------------------------------

STREAMS = (ORDERS, ITEMS)


@dataclass(eq=False)
class MemoryLine:
    """A line in memory; `stored` has those that are not released."""

    line: bytes
    stored: list[MemoryLine]

    def read(self) -> bytes:
        return self.line

    def release(self) -> None:
        self.stored.remove(self)


class Ledger(StateLedger):
    """A ledger whose due states can be emitted all at once."""

    def __init__(self, streams: tuple[StreamId, ...] = STREAMS) -> None:
        self.stored: list[MemoryLine] = []
        super().__init__(streams, self._store_line)

    def _store_line(self, line: bytes) -> MemoryLine:
        self.stored.append(MemoryLine(line, self.stored))
        return self.stored[-1]

    def emit(self) -> list[bytes]:
        lines = []
        while (due := self.due()) is not None:
            lines.append(with_statistics(due.line.read(), due.written, due.rejected))
            self.release()
        return lines


def numbered(number: int, stream: StreamId | None) -> State:
    return State(f'{{"type":"STATE","state":{{"id":{number}}}}}'.encode(), stream)


def totals_of(lines: list[bytes]) -> list[tuple[int, float]]:
    """The numbers of emitted states, and how many records each is the first to cover."""
    return [(number, written + rejected) for number, written, rejected in counts_of(lines)]


def counts_of(lines: list[bytes]) -> list[tuple[int, float, float]]:
    """The numbers of emitted states, and how many written and rejected records each reports."""
    states = [json.loads(line)["state"] for line in lines]
    return [
        (state["id"], state["destinationStats"]["recordCount"], state["destinationStats"].get("rejectedRecordCount", 0))
        for state in states
    ]


# --- When a state is due


def test_a_state_waits_for_exactly_the_records_before_it() -> None:
    states = Ledger()
    states.record(ORDERS, 10)
    states.hold(numbered(1, ORDERS))
    states.record(ORDERS, 5)

    states.commit(ORDERS, 0, 9)
    assert states.emit() == []
    states.commit(ORDERS, 9, 3)
    assert totals_of(states.emit()) == [(1, 10.0)]
    assert (states.released_by_stream.total(), states.held) == (1, 0)


def test_a_state_before_any_record_is_due_at_once() -> None:
    states = Ledger()
    for number, stream in enumerate([ORDERS, None]):
        states.hold(numbered(number, stream))

    assert totals_of(states.emit()) == [(0, 0.0), (1, 0.0)]


def test_a_state_of_one_stream_does_not_wait_for_another() -> None:
    states = Ledger()
    states.record(ITEMS, 100)
    states.record(ORDERS, 1)
    states.hold(numbered(1, ORDERS))
    states.commit(ORDERS, 0, 1)

    assert totals_of(states.emit()) == [(1, 1.0)]


def test_a_global_state_waits_for_every_stream_and_counts_them_together() -> None:
    states = Ledger()
    states.record(ITEMS, 3)
    states.record(ORDERS, 4)
    states.hold(numbered(1, None))

    states.commit(ORDERS, 0, 4)
    assert states.emit() == []
    states.commit(ITEMS, 0, 3)
    assert totals_of(states.emit()) == [(1, 7.0)]


def test_consecutive_states_count_their_records_once() -> None:
    states = Ledger()
    states.record(ORDERS, 4)
    for number in (1, 2, 3):
        states.hold(numbered(number, ORDERS))
    states.commit(ORDERS, 0, 4)

    assert totals_of(states.emit()) == [(1, 4.0), (2, 0.0), (3, 0.0)]
    assert states.emit() == []


def test_rejected_records_are_reported_once_by_the_first_states_that_cover_as_many() -> None:
    states = Ledger()
    for number in (1, 2, 3):
        states.record(ORDERS, 2)
        states.hold(numbered(number, ORDERS))
    states.commit(ORDERS, 0, 6, 3)
    states.record(ORDERS, 1)
    states.hold(numbered(4, ORDERS))
    states.commit(ORDERS, 6, 1)

    assert counts_of(states.emit()) == [(1, 0.0, 2.0), (2, 1.0, 1.0), (3, 2.0, 0), (4, 1.0, 0)]


def test_a_global_state_reports_the_rejected_records_of_every_stream() -> None:
    states = Ledger()
    for stream in (ITEMS, ORDERS):
        states.record(stream, 3)
        states.commit(stream, 0, 3, 1)
    states.hold(numbered(1, None))

    assert counts_of(states.emit()) == [(1, 4.0, 2.0)]


# --- What is stored, and for how long


def test_a_state_is_stored_until_it_is_released() -> None:
    states = Ledger()
    states.hold(numbered(1, ORDERS))

    assert states.due() == states.due() is not None
    assert (states.held, states.released_by_stream.total(), len(states.stored)) == (1, 0, 1)
    states.release()
    assert (states.held, states.released_by_stream.total(), states.stored) == (0, 1, [])


def test_the_counts_of_a_due_state_do_not_change() -> None:
    states = Ledger()
    states.record(ORDERS, 2)
    states.hold(numbered(1, ORDERS))
    states.commit(ORDERS, 0, 2)
    due = states.due()
    assert due is not None

    states.record(ORDERS, 2)
    states.hold(numbered(2, ORDERS))
    states.commit(ORDERS, 2, 2, 2)

    assert (due.written, due.rejected) == (2, 0)
    assert counts_of(states.emit()) == [(1, 2.0, 0), (2, 0.0, 2.0)]


def test_a_global_state_needs_only_streams_read_since_the_one_before_it() -> None:
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
    assert states.emit() == []
    states.commit(streams[0], 0, 101)
    assert [number for number, _ in totals_of(states.emit())] == list(range(100))
    assert (states.held, states.needs) == (0, 0)


# --- Failed streams


def test_only_the_states_of_a_failed_stream_are_dropped() -> None:
    states = Ledger()
    for number, stream in enumerate([ORDERS, ITEMS, ORDERS]):
        states.record(stream, 1)
        states.hold(numbered(number, stream))

    states.fail(ORDERS)
    states.hold(numbered(3, ORDERS))

    states.commit(ITEMS, 0, 1)
    assert totals_of(states.emit()) == [(1, 1.0)]
    assert (states.held, states.stored, states.is_blocked) == (0, [], False)
    assert not states.can_acknowledge(ORDERS, 2)
    assert states.can_acknowledge(ITEMS, 1)


def test_a_state_that_was_due_before_its_stream_failed_is_emitted() -> None:
    states = Ledger()
    states.record(ORDERS, 1)
    states.hold(numbered(1, ORDERS))
    states.commit(ORDERS, 0, 1)

    states.fail(ORDERS)

    assert totals_of(states.emit()) == [(1, 1.0)]


def test_after_a_failure_only_global_states_before_the_lost_records_can_be_due() -> None:
    states = Ledger()
    states.record(ITEMS, 2)
    states.hold(numbered(1, None))
    states.record(ORDERS, 1)
    states.record(ITEMS, 2)
    states.hold(numbered(2, None))
    states.record(ITEMS, 2)
    states.hold(numbered(3, None))

    states.fail(ORDERS)

    assert states.is_blocked
    assert (states.held, len(states.stored)) == (1, 1)
    assert states.can_acknowledge(ITEMS, 1)
    assert not states.can_acknowledge(ITEMS, 2)
    states.commit(ITEMS, 0, 2)
    assert totals_of(states.emit()) == [(1, 2.0)]


def test_global_states_continue_while_a_failed_stream_has_lost_no_records() -> None:
    states = Ledger()
    states.hold(numbered(1, None))
    states.fail(ORDERS)
    states.record(ITEMS, 1)
    states.hold(numbered(2, None))
    states.commit(ITEMS, 0, 1)
    assert not states.is_blocked

    assert [number for number, _ in totals_of(states.emit())] == [1, 2]
    states.record(ORDERS, 1)
    assert states.is_blocked


def test_a_first_global_state_after_lost_records_blocks_the_ledger() -> None:
    states = Ledger()
    states.record(ORDERS, 1)
    states.fail(ORDERS)
    assert not states.is_blocked

    states.hold(numbered(1, None))

    assert states.is_blocked
    assert states.emit() == []


# --- The law, for any order of records, states and commits


@dataclass(frozen=True)
class Sent:
    """A state that was sent, and how many records of each stream preceded it."""

    number: int
    stream: StreamId | None
    before: dict[StreamId, int]


_kinds = st.sampled_from(["record", "record", "state", "commit"])
_syncs = st.lists(st.tuples(_kinds, st.sampled_from([*STREAMS, None]), st.integers(1, 5)), max_size=60)
"""Records arrive, states arrive, batches of records that arrived are committed."""


@given(sync=_syncs, random=st.randoms(use_true_random=False))
def test_states_are_due_in_order_exactly_when_committed_and_count_every_record_once(
    sync: list[tuple[str, StreamId | None, int]], random: Random
) -> None:
    states = Ledger()
    received: dict[StreamId, int] = defaultdict(int)
    batched: dict[StreamId, int] = defaultdict(int)
    batches: list[tuple[StreamId, int, int]] = []
    committed: dict[StreamId, set[int]] = defaultdict(set)
    sent: list[Sent] = []
    emitted: list[tuple[int, float]] = []

    def commit_one() -> None:
        stream, first, count = batches.pop(random.randrange(len(batches)))
        committed[stream] |= set(range(first, first + count))
        states.commit(stream, first, count, random.randint(0, count))
        emitted.extend(totals_of(states.emit()))

    def check() -> None:
        for state in sent:
            is_committed = all(set(range(count)) <= committed[stream] for stream, count in state.before.items())
            assert (state.number in {number for number, _ in emitted}) == is_committed

    for event, stream, count in sync:
        if event == "state":
            before = {s: received[s] for s in (STREAMS if stream is None else [stream])}
            sent.append(Sent(len(sent), stream, before))
            states.hold(numbered(len(sent) - 1, stream))
            emitted.extend(totals_of(states.emit()))
        elif stream is not None and event == "record":
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
    for number, _ in emitted:
        by_scope[sent[number].stream].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_scope.values())
    assert sorted(number for number, _ in emitted) == list(range(len(sent)))
    covered = {stream: max((state.before.get(stream, 0) for state in sent), default=0) for stream in STREAMS}
    assert sum(count for _, count in emitted) == sum(covered.values())
    assert (states.released_by_stream.total(), states.held) == (len(sent), 0)
