"""The state ledger: a state goes out when it has become true, in order, as it came, with the records it covers."""

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
STREAMS = (ORDERS, ITEMS)


def state_line(state: str) -> bytes:
    return f'{{"type":"STATE","state":{state}}}'.encode()


def numbered(number: int, stream: StreamId | None) -> State:
    return State(state_line(f'{{"id":{number}}}'), stream)


def ledger() -> StateLedger:
    return StateLedger(STREAMS)


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
    assert states.release() == []
    states.commit(ORDERS, 9, 3)
    assert told(states.release()) == [(1, 10.0)]
    assert (states.released, states.held()) == (1, 0)


def test_a_state_before_any_record_goes_out_at_once() -> None:
    states = ledger()
    for number, stream in enumerate([ORDERS, None]):
        states.hold(numbered(number, stream))

    assert told(states.release()) == [(0, 0.0), (1, 0.0)]


def test_a_state_of_one_stream_does_not_wait_for_another() -> None:
    states = ledger()
    states.record(ITEMS, 100)
    states.record(ORDERS, 1)
    states.hold(numbered(1, ORDERS))
    states.commit(ORDERS, 0, 1)

    assert told(states.release()) == [(1, 1.0)]


def test_a_state_for_all_waits_for_every_stream_and_counts_them_together() -> None:
    states = ledger()
    states.record(ITEMS, 3)
    states.record(ORDERS, 4)
    states.hold(numbered(1, None))

    states.commit(ORDERS, 0, 4)
    assert states.release() == []
    states.commit(ITEMS, 0, 3)
    assert told(states.release()) == [(1, 7.0)]


def test_a_state_of_a_stream_that_the_catalog_does_not_have_waits_for_nothing() -> None:
    states = ledger()
    states.record(ORDERS, 1)
    states.hold(numbered(1, StreamId(None, "elsewhere")))

    assert told(states.release()) == [(1, 0.0)]


def test_many_states_in_a_row_count_their_records_once() -> None:
    states = ledger()
    states.record(ORDERS, 4)
    for number in (1, 2, 3):
        states.hold(numbered(number, ORDERS))
    states.commit(ORDERS, 0, 4)

    assert told(states.release()) == [(1, 4.0), (2, 0.0), (3, 0.0)]
    assert states.release() == []


def test_rejected_records_are_told_of_once_by_the_first_states_that_cover_as_many() -> None:
    states = ledger()
    for number in (1, 2, 3):
        states.record(ORDERS, 2)
        states.hold(numbered(number, ORDERS))
    states.commit(ORDERS, 0, 6, 3)
    states.record(ORDERS, 1)
    states.hold(numbered(4, ORDERS))
    states.commit(ORDERS, 6, 1)

    assert told_apart(states.release()) == [(1, 0.0, 2.0), (2, 1.0, 1.0), (3, 2.0, 0), (4, 1.0, 0)]


def test_a_state_for_all_tells_of_every_stream_s_rejected_records() -> None:
    states = ledger()
    for stream in (ITEMS, ORDERS):
        states.record(stream, 3)
        states.commit(stream, 0, 3, 1)
    states.hold(numbered(1, None))

    assert told_apart(states.release()) == [(1, 4.0, 2.0)]


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
        released.extend(told(states.release()))

    def check() -> None:
        for each in sent:
            is_true = all(set(range(count)) <= committed[stream] for stream, count in each.before.items())
            assert (each.number in {number for number, _ in released}) == is_true

    for what, stream, count in sync:
        if what == "state":
            before = {s: received[s] for s in (STREAMS if stream is None else [stream])}
            sent.append(Sent(len(sent), stream, before))
            states.hold(numbered(len(sent) - 1, stream))
            released.extend(told(states.release()))
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
    assert (states.released, states.held()) == (len(sent), 0)


# --- What


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
        ('{"stream_state" : [NaN], "type" : "STREAM" , "stream":{"stream_descriptor":{"name":"orders"}} }', ORDERS),
    ],
)
def test_a_state_is_for_a_stream_or_for_all(state: str, stream: StreamId | None) -> None:
    line = state_line(state)

    assert parse_state(line) == State(line, stream)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type":"STATE"}', "without the member 'state'"),
        (state_line("null"), "Expected `object`, got `null`"),
        (state_line('"secret"'), "Expected `object`, got `str`"),
        (state_line('{"type":"STREAM","data":"secret"}'), "without the member 'stream'"),
        (state_line('{"type":"STREAM","stream":{"secret":1}}'), "without the member 'stream_descriptor'"),
        (state_line('{"type":"STREAM","stream":{"stream_descriptor":{"secret":1}}}'), "missing required field `name`"),
        (state_line('{"type":"STREAM","stream":{"stream_descriptor":{"name":7}}}'), "Expected `str`, got `int`"),
        (state_line('{"type":7,"data":"secret"}'), "Expected `str | null`, got `int`"),
        (state_line('{"type":"' + "PER_GALAXY" * 9 + '","data":"secret"}'), "of the unknown type 'PER_GALAXYPER"),
        (state_line('{"data":"secret"'), "cannot be read"),
        (b"\xff", "cannot be read"),
    ],
)
def test_a_state_without_what_it_needs_is_refused_without_quoting_it(line: bytes, said: str) -> None:
    with pytest.raises(InvalidState) as refused:
        parse_state(line)

    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize(
    ("received", "echoed"),
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
    ],
)
def test_a_state_comes_back_as_it_was_with_its_count(received: str, echoed: str) -> None:
    assert with_statistics(state_line(received), 3) == state_line(echoed)


def test_what_stands_beside_the_state_comes_back_too() -> None:
    line = b' { "type" : "STATE", "state": { }, "more": {"a": 1.50, "b": null} }\r'

    echoed = with_statistics(line, 3)

    assert echoed == b'{"type":"STATE","state":{"destinationStats":{"recordCount":3.0}},"more":{"a": 1.50, "b": null}}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(black_box=json_values, ascii_only=st.booleans(), spaced=st.booleans())
def test_a_black_box_comes_back_byte_for_byte(black_box: object, ascii_only: bool, spaced: bool) -> None:
    separators = (" , ", " : ") if spaced else (",", ":")
    text = json.dumps(black_box, ensure_ascii=ascii_only, separators=separators)
    descriptor = '{"name":"items","namespace":"shop"}'
    line = state_line(f'{{"type":"STREAM","stream":{{"stream_state":{text},"stream_descriptor":{descriptor}}},"id":1}}')

    state = parse_state(line)

    assert state == State(line, ITEMS)
    assert with_statistics(state.line, 1) == line[:-2] + b',"destinationStats":{"recordCount":1.0}}}'


def test_the_count_is_spelled_as_a_decimal_however_large() -> None:
    assert b'"recordCount":12345678901.0' in with_statistics(state_line("{}"), 12_345_678_901)
