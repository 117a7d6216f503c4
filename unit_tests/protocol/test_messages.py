"""Reading messages: a chunk at once and line by line are equal, and malformed lines are reported without content."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from destination_datalake.protocol.messages import MalformedLine, Message, MessageReader, Records

Read = tuple[str, str | None, str, bytes]
"""A line as it was read: its type, the namespace and stream of a record, and its bytes."""


def record(
    stream: str = "orders", data: str = '{"id":1}', *, namespace: str | None = None, emitted_at: str = "1"
) -> bytes:
    where = "" if namespace is None else f'"namespace":{json.dumps(namespace)},'
    body = f'{where}"stream":"{stream}","data":{data},"emitted_at":{emitted_at}'
    return f'{{"type":"RECORD","record":{{{body}}}}}'.encode()


def read_lines(chunks: Iterable[bytes]) -> tuple[list[Read], str | None]:
    """All messages line by line, and the error that ended reading, if one did."""
    reader = MessageReader()
    read: list[Read] = []
    try:
        for chunk in chunks:
            for item in reader.read(chunk):
                match item:
                    case Records(namespace, stream, text, count, _, frame):
                        lines = (bytes(text) if frame is None else frame.restored(text)).split(b"\n")
                        assert (len(lines), lines[-1]) == (count + 1, b"")
                        read += [("RECORD", namespace, stream, line) for line in lines[:-1]]
                    case Message(kind, line, _):
                        read.append((kind, None, "", line))
    except MalformedLine as error:
        return read, str(error)
    return read, None


STATE = b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders"}}}}'
REGULAR = [
    record(),
    record("orders", '{"id":2,"deep":{"a":[1,{"b":null}]}}'),
    record("orders", namespace="shop"),
    record("orders", namespace=""),
    record("items", emitted_at="1700000000000.5"),
    STATE,
    b'{"type":"TRACE","trace":{"type":"STREAM_STATUS"}}',
    b'{"record":null,"type":"LOG"}',
    b'{"type":"NEWS","number":123456789012345678901234567890}',
]
BLANK = [b"", b"  ", b"\r", b"\t"]
IRREGULAR = [
    record(data='{"x":NaN,"y":-Infinity}'),
    record(data='{"x":"\\ud83d"}'),
    record() + b"\r",
    record(data='{"\\ud83d":{"\\udc00":1}}'),
    record(data="{}")[:-1] + b',"\\ud83d":1}',
    record(data='{"deep":' + "[" * 5_000 + "]" * 5_000 + "}"),
    record(data='{"deep":' + '{"a":' * 2_000 + '"]"' + "}" * 2_000 + "}"),
    b'{"type":"STATE","state":{"data":' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
    b'{"type":"NEWS","record":[1]}',
    b'{"type":"NEWS","record":[1],"deep":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    record("\\ud83d\\ude00", '{"x":NaN,"deep":' + "[" * 100_000 + "]" * 100_000 + "}"),
    record(data='{"x":NaN,"y":"\\ud83d","deep":' + "[" * 5_000 + "]" * 5_000 + "}"),
    record("items", emitted_at="1e400"),
]
MALFORMED = [
    b"Traceback (most recent call last):",
    b'{"type":"RECORD"}',
    b'{"type":"RECORD","record":null}',
    b'{"type":"RECORD","record":{"stream":"orders","data":[],"emitted_at":1}}',
    b"[]",
    record() + record(),
    record() + b" " + STATE,
    STATE + record("items"),
    *record().split(b'"record":'),
    *record().rsplit(b"}", 1),
]


@given(lines=st.lists(st.sampled_from(REGULAR + BLANK + IRREGULAR + MALFORMED)))
@example(lines=[record() + record(), b""])
@example(lines=[record() + record(), *record().rsplit(b"}", 1)])
def test_a_chunk_is_read_like_its_lines_one_by_one(lines: list[bytes]) -> None:
    """An irregular line has the whole chunk read line by line; alone, a regular line is read in bulk."""
    at_once = read_lines([b"".join(line + b"\n" for line in lines)] if lines else [])
    one_by_one = read_lines(line + b"\n" for line in lines)

    assert at_once == one_by_one
    good = [line for line in lines if line.strip()]
    stop = next((index for index, line in enumerate(good) if line in MALFORMED), len(good))
    assert [line for *_, line in at_once[0]] == good[:stop]


@pytest.mark.parametrize("line", [record(), STATE])
def test_a_byte_order_mark_is_not_part_of_a_line(line: bytes) -> None:
    read, _ = read_lines([b"\xef\xbb\xbf" + line + b"\n" + record()])

    assert [text for *_, text in read] == [line, record()]


@given(lines=st.lists(st.sampled_from(REGULAR), min_size=1))
def test_consecutive_records_of_a_stream_are_one_run(lines: list[bytes]) -> None:
    items = list(MessageReader().read(b"\n".join(lines)))

    streams = [(item.namespace, item.stream) if isinstance(item, Records) else None for item in items]
    assert not any(stream == following is not None for stream, following in pairwise(streams))
    assert sum(item.count if isinstance(item, Records) else 1 for item in items) == len(lines)


def test_a_run_has_the_stream_and_the_bytes_as_received() -> None:
    first, second = record(namespace="shop", data='{ "n" : 1.0 }'), record(namespace="shop")

    [records] = MessageReader().read(first + b"\n" + second + b"\n")

    assert records == Records("shop", "orders", first + b"\n" + second + b"\n", 2, 1)


def test_the_last_line_of_the_input_needs_no_newline() -> None:
    assert list(MessageReader().read(record())) == [Records(None, "orders", record() + b"\n", 1, 1)]


def test_absent_null_and_empty_namespaces_are_read_as_sent() -> None:
    lines = [record(), record().replace(b'{"stream"', b'{"namespace":null,"stream"'), record(namespace="")]

    read, _ = read_lines([b"\n".join(lines)])

    assert [namespace for _, namespace, _, _ in read] == [None, None, ""]


@pytest.mark.parametrize(
    "data",
    [
        "{}",
        '{"x":NaN}',
        '{"x":Infinity,"y":-Infinity}',
        '{"x":"\\ud800"}',
        '{"x":1e999}',
        '{"x":123456789012345678901234567890}',
        '{"x":1,"x":2}',
        '{"type":"STATE","record":{"stream":"other"}}',
        '{"x":"' + "y" * 3_000_000 + '"}',
    ],
)
def test_any_values_in_the_data_of_a_record_are_accepted(data: str) -> None:
    line = record(data=data)

    assert read_lines([line]) == ([("RECORD", None, "orders", line)], None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"secret", "JSON is malformed"),
        (b'{"type":"RECORD","record":{"stream":"secret"', "truncated"),
        (b"null", "Expected `object`, got `null`"),
        (b'["secret"]', "Expected `object`, got `array`"),
        (b'"secret"', "Expected `object`, got `str`"),
        (b'{"secret":1}', "missing required field `type`"),
        (b'{"type":7}', "Expected `str`, got `int` - at `$.type`"),
        (b'{"type":null,"secret":1}', "Expected `str`, got `null`"),
        (b'{"type":"RECORD","secret":1}', "a RECORD without a record"),
        (b'{"type":"RECORD","record":null,"secret":1}', "a RECORD without a record"),
        (b'{"type":"RECORD","record":"secret"}', "Expected `object | null`, got `str`"),
        (record(data="null"), "Expected `object`, got `null` - at `$.record.data`"),
        (record(data='["secret"]'), "Expected `object`, got `array` - at `$.record.data`"),
        (record(emitted_at='"secret"'), "Expected `int | float`, got `str` - at `$.record.emitted_at`"),
        (b'{"type":"RECORD","record":{"stream":"secret","emitted_at":1}}', "missing required field `data`"),
        (b'{"type":"RECORD","record":{"stream":"secret","data":{}}}', "missing required field `emitted_at`"),
        (b'{"type":"RECORD","record":{"data":{"secret":1},"emitted_at":1}}', "missing required field `stream`"),
        (record(data='{"secret":"\x01"}'), "JSON is malformed"),
        (record(data='{"secret":' + "[" * 100_000 + "]" * 99_999 + "}"), "JSON is malformed"),
        (record("secret") + record(), "trailing characters"),
    ],
)
def test_a_malformed_line_is_reported_by_number_and_reason_without_its_content(line: bytes, reason: str) -> None:
    before = [record(), b"", STATE]

    read, error = read_lines([b"\n".join([*before, line, record()])])

    assert [text for *_, text in read] == [record(), STATE]
    assert error is not None
    assert error.startswith(f"Line 4 of the input ({len(line)} bytes) is not an Airbyte message: ")
    assert reason in error
    assert "secret" not in error


@pytest.mark.parametrize("irregular", [b"", b"\r", record(data='{"x":NaN}')])
def test_line_numbers_count_blank_lines_and_go_on_over_chunks(irregular: bytes) -> None:
    reader = MessageReader()

    first = list(reader.read(b"\n".join([STATE, irregular, STATE])))
    assert list(reader.read(b"")) == []  # a quiet second is no line
    second = list(reader.read(STATE + b"\n"))

    assert [item.number for item in first + second if isinstance(item, Message)] == [1, 3, 4]
    assert reader.lines_read == 4
