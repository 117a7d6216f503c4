"""States: which streams they cover, and that they are emitted as they were received."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.states import InvalidState, State, parse_state, with_statistics

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
        (b'{"type":"STATE","state":{"data":"secret\xff"}}', "not UTF-8 (byte 40)"),
        (state_line("null"), "Expected `object`, got `null`"),
        (state_line('"secret"'), "Expected `object`, got `str`"),
        (state_line('{"type":"STREAM","data":"secret"}'), "without the member 'stream'"),
        (state_line('{"type":"STREAM","stream":{"secret":1}}'), "without the member 'stream_descriptor'"),
        (state_line('{"type":"STREAM","stream":{"stream_descriptor":{"secret":1}}}'), "missing required field `name`"),
        (state_line('{"type":"STREAM","stream":{"stream_descriptor":{"name":7}}}'), "Expected `str`, got `int`"),
        (state_line('{"type":7,"data":"secret"}'), "Expected `str | null`, got `int`"),
        (state_line('{"type":"' + "PER_GALAXY" * 9 + '","data":"secret"}'), "of the unknown type 'PER_GALAXYPER"),
        (state_line('{"data":"secret"'), "cannot be read"),
        (state_line('{"secret":' + DEEP + "}"), "cannot be read: it is nested too deeply"),
        (b"\xff", "not UTF-8 (byte 1)"),
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
