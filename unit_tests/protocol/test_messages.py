"""Reading messages: a chunk at once and line by line are equal, and malformed lines are reported without content."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from destination_datalake import native
from destination_datalake.protocol.messages import MalformedLine, Message, MessageReader, Records
from unit_tests.examples import examples

Read = tuple[str, str | None, str, bytes, int]
"""A line as it was read: its type, the namespace and stream of a record, its bytes, and its number."""


def record(
    stream: str = "orders", data: str = '{"id":1}', *, namespace: str | None = None, emitted_at: str = "1"
) -> bytes:
    where = "" if namespace is None else f'"namespace":{json.dumps(namespace)},'
    body = f'{where}"stream":"{stream}","data":{data},"emitted_at":{emitted_at}'
    return f'{{"type":"RECORD","record":{{{body}}}}}'.encode()


def read_lines(chunks: Iterable[bytes]) -> tuple[list[Read], str | None]:
    """All messages line by line, and the error that ended reading, if one did."""
    reader = MessageReader()
    return as_lines(item for chunk in chunks for item in reader.read(chunk))


def read_one_by_one(chunk: bytes) -> tuple[list[Read], str | None]:
    """All messages of a chunk, each line decoded alone."""
    return as_lines(MessageReader().read_one_by_one(chunk))


def as_lines(items: Iterator[Records | Message]) -> tuple[list[Read], str | None]:
    read: list[Read] = []
    try:
        for item in items:
            match item:
                case Records(namespace, stream, text, count, first):
                    *lines, remainder = bytes(text).split(b"\n")
                    assert (len(lines), remainder) == (count, b"")
                    read += [("RECORD", namespace, stream, line, first + index) for index, line in enumerate(lines)]
                case Message(kind, line, number):
                    read.append((kind, None, "", line, number))
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
DEEP = '{"deep":' + "[" * 5_000 + "]" * 5_000 + "}"
BLANK = [b"", b"  ", b"\r", b"\t"]
IRREGULAR = [
    record(data='{"x":NaN,"y":-Infinity}'),
    record(data='{"x":"\\ud83d"}'),
    record() + b"\r",
    record(data='{"\\ud83d":{"\\udc00":1}}'),
    record(data="{}")[:-1] + b',"\\ud83d":1}',
    record(data=DEEP),
    record(data='{"deep":' + '{"a":' * 2_000 + '"]"' + "}" * 2_000 + "}"),
    b'{"type":"STATE","state":{"data":' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
    b'{"type":"NEWS","record":[1]}',
    b'{"type":"NEWS","record":[1],"deep":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    record("\\ud83d\\ude00", '{"x":NaN,"deep":' + "[" * 100_000 + "]" * 100_000 + "}"),
    record(data='{"x":NaN,"y":"\\ud83d","deep":' + "[" * 5_000 + "]" * 5_000 + "}"),
    record("items", emitted_at="1e400"),
    record(data='{"x":NaN,"y":"?"}').replace(b"?", b"\xe9"),
    record(data='{"x":"\\ud83d?"}').replace(b"?", b"\xff"),
    record(data='{"x":"?\\ud83d","deep":' + "[" * 5_000 + "]" * 5_000 + "}").replace(b"?", b"\xe2\x82"),
    b'{"type":"NEWS","x":NaN,"y":"\xe9"}',
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
    record(data=DEEP) + record(),
    record() + record(data=DEEP),
    record(data=DEEP) + STATE,
    record(data=DEEP) + b"7",
    *record().split(b'"record":'),
    *record().rsplit(b"}", 1),
]


@given(lines=st.lists(st.sampled_from(REGULAR + BLANK + IRREGULAR + MALFORMED)))
@example(lines=[record() + record(), b""])
@example(lines=[record() + record(), *record().rsplit(b"}", 1)])
def test_a_chunk_is_read_like_its_lines_one_by_one(lines: list[bytes]) -> None:
    at_once = read_lines([b"".join(line + b"\n" for line in lines)] if lines else [])
    one_by_one = read_lines(line + b"\n" for line in lines)

    assert at_once == one_by_one
    good = [line for line in lines if line.strip()]
    stop = next((index for index, line in enumerate(good) if line in MALFORMED), len(good))
    assert [line for *_, line, _ in at_once[0]] == good[:stop]


@pytest.mark.parametrize("line", [record(), STATE])
def test_a_byte_order_mark_is_not_part_of_a_line(line: bytes) -> None:
    read, _ = read_lines([b"\xef\xbb\xbf" + line + b"\n" + record()])

    assert [text for *_, text, _ in read] == [line, record()]


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

    assert [namespace for _, namespace, *_ in read] == [None, None, ""]


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

    assert read_lines([line]) == ([("RECORD", None, "orders", line, 1)], None)


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
        (b'{"type":"RECORD","secret":1}', "the RECORD has no member record"),
        (b'{"type":"RECORD","record":null,"secret":1}', "the RECORD has no member record"),
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

    assert [text for *_, text, _ in read] == [record(), STATE]
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


# --- The native scan


DATA = '{"id":7,"note":"a }, \\"emitted_at\\":1700000000000}}"}'
LINE = record(data=DATA, emitted_at="1700000000000").decode()

REGULAR_SHAPES = [
    pytest.param(LINE, id="Python CDK"),
    pytest.param(
        LINE.replace('"stream"', '"namespace":"public","stream"')[:-2] + ',"meta":{"changes":[]}}}', id="Java CDK"
    ),
    pytest.param(json.dumps(json.loads(LINE)), id="json.dumps"),
    pytest.param(
        LINE.replace('"record"', '"log":null,"record"')[:-5] + ',"meta":null},"state":null}',
        id="in seconds, with nulls",
    ),
    pytest.param(f'{{"record":{{"emitted_at":1,"stream":"orders","data":{DATA}}},"type":"RECORD"}}', id="type last"),
    pytest.param(LINE.replace('"data":', '"namespace":null , "data" :\t') + "\r", id="white space"),
    pytest.param(" " + LINE, id="white space first"),
    pytest.param(LINE.replace("orders", "größe"), id="a name that is not ASCII"),
    pytest.param(LINE.replace("orders", ""), id="an empty name"),
    pytest.param(LINE.replace('"stream"', '"namespace":"","stream"'), id="an empty namespace"),
    pytest.param(LINE.replace("orders", "data")[:-2] + ',"meta":{"data":{},"data":[]}}}', id="other data"),
    pytest.param(LINE[:-2] + ".5e-3}}", id="a fraction"),
    pytest.param(LINE[:-2] + ',"meta":{"changes":[{"field":"id"}]}}}', id="changes"),
    pytest.param(LINE.replace(DATA, "{}"), id="no members"),
    pytest.param(LINE.replace(DATA, f'{{"id":1,"id":{"[" * 150}{"]" * 150}}}'), id="repeated and nested members"),
    pytest.param(LINE.replace(DATA, '{"x":"\\ud83d"}'), id="a lone surrogate in the data"),
]

needs_library = pytest.mark.skipif(native.library() is None, reason="the native library is not compiled")


@needs_library
@pytest.mark.parametrize("line", REGULAR_SHAPES)
def test_regular_lines_are_one_run(line: str) -> None:
    changed = line.replace("7", "8")
    chunk = f"{line}\n{changed}\n".encode()

    [records] = MessageReader().read(chunk)

    assert isinstance(records, Records)
    assert (bytes(records.lines), records.count) == (chunk, 2)
    assert read_lines([chunk]) == read_one_by_one(chunk)


ODD_LINES = [
    pytest.param(LINE.replace("RECORD", "STATE"), id="another message"),
    pytest.param(LINE.replace("RECORD", "REC\\u004fRD"), id="a type with an escape"),
    pytest.param(LINE.replace('"type"', '"typ\\u0065"'), id="a key with an escape"),
    pytest.param(LINE.replace('"data"', '"dat\\u0061":{},"data"'), id="data twice, once with an escape"),
    pytest.param(LINE.replace("orders", "\\u006frders"), id="a name with an escape"),
    pytest.param(LINE.replace('"stream"', '"namespace":"\\t","stream"'), id="a namespace with an escape"),
    pytest.param(LINE.replace('"stream"', '"namespace":1,"stream"'), id="a namespace that is a number"),
    pytest.param(LINE[:-15] + '"1"}}', id="a time in quotes"),
    pytest.param(LINE[:-15] + "01}}", id="a time with a zero"),
    pytest.param(LINE[:-15] + "NaN}}", id="a time that is no number"),
    pytest.param(LINE[:-2] + ',"emitted_at":1700000000001}}', id="two times"),
    pytest.param(LINE[:-2] + ',"stream":"items"}}', id="two streams"),
    pytest.param(LINE[:-2] + ',"namespace":"a","namespace":"b"}}', id="two namespaces"),
    pytest.param(LINE.replace('"data"', '"data":{},"data"'), id="two data"),
    pytest.param(LINE[:-1] + ',"record":{"stream":"items","data":{},"emitted_at":1}}', id="two records"),
    pytest.param(LINE[:-1] + ',"type":"STATE"}', id="two types"),
    pytest.param(LINE.replace(DATA, "[]"), id="an array as data"),
    pytest.param(LINE.replace(DATA, '{"id":NaN}'), id="NaN"),
    pytest.param(LINE.replace(DATA, '{"id":Inf}'), id="Inf"),
    pytest.param(LINE.replace(DATA, '{"id":1,}'), id="a comma too many"),
    pytest.param(LINE.replace(DATA, '{"id":1 /**/}'), id="a comment"),
    pytest.param(LINE.replace(DATA, '{"id":"\\q"}'), id="an unknown escape"),
    pytest.param(LINE.replace(DATA, '{"id":"\t"}'), id="a control character"),
    pytest.param(LINE.replace(DATA, '{"id":"\udcff"}'), id="not UTF-8"),
    pytest.param(LINE.replace(DATA, '{"id":"\udced\udca0\udc80"}'), id="a surrogate in UTF-8"),
    pytest.param(LINE.replace("orders", "orders\udcc3"), id="a name that is not UTF-8"),
    pytest.param(LINE.replace(DATA, '{"id":' + "[" * 300 + "]" * 300 + "}"), id="deep"),
    pytest.param(LINE.replace(DATA, '{"id":' + "[" * 2000 + "]" * 2000 + "}"), id="too deep"),
    pytest.param(LINE.replace(DATA, '{"id":' + "[" * 2000 + "]" * 1999 + "}"), id="too deep and malformed"),
    pytest.param(LINE[:-1], id="cut"),
    pytest.param(LINE[: LINE.index("note")], id="cut in the data"),
    pytest.param(LINE + "}", id="a brace too many"),
    pytest.param(LINE + "\0", id="a null character"),
    pytest.param(LINE + LINE, id="two messages"),
    pytest.param("\ufeff" + LINE, id="a byte-order mark"),
    pytest.param("", id="nothing"),
    pytest.param(" \t\v\f\r", id="blank"),
    pytest.param("{}", id="no members"),
    pytest.param('{"type":"RECORD","record":{}}', id="an empty record"),
    pytest.param(LINE.replace('"stream"', '"s"'), id="no stream"),
    pytest.param(LINE.replace('"emitted_at":17', '"e":17'), id="no time"),
    pytest.param(LINE.replace('"type":"RECORD",', ""), id="no type"),
]


@pytest.mark.parametrize("line", ODD_LINES)
def test_odd_lines_are_read_the_same_way_between_regular_ones(line: str) -> None:
    regular = [LINE, LINE.replace("7", "8")]
    chunk = "".join(f"{text}\n" for text in [*regular, line, *regular]).encode("utf-8", "surrogateescape")

    read, error = read_lines([chunk])

    assert (read, error) == read_one_by_one(chunk)
    assert len(read) >= 2


# Any lines


def any_of(usual: str, *odd: str) -> st.SearchStrategy[str]:
    """One of the texts, mostly the usual one."""
    return st.sampled_from([usual] * 5 * len(odd) + [*odd])


def objects(draw: Callable[[st.SearchStrategy[str]], str], members: Iterable[str]) -> str:
    """A JSON object of the members, in any order and with any white space; one may be repeated or absent."""
    texts = [*members]
    match draw(any_of("usual", "shuffled", "repeated", "absent")):
        case "shuffled":
            texts = draw(st.permutations(texts).map("\n".join)).split("\n")
        case "repeated":
            texts.append(draw(st.sampled_from(texts)))
        case "absent":
            texts.remove(draw(st.sampled_from(texts)))
    space = draw(any_of("", " ", "\t", "\r"))
    return f"{{{space}{f'{space},{space}'.join(texts)}{space}}}"


STREAMS = any_of(
    '"orders"', '"items"', '""', '"größe"', '"\\u006frders"', '"\\ud83d"', '"a\\"b"', '"\udcff"', "null", "1"
)
NAMESPACES = any_of("null", '"shop"', '""', '"sh\\u006fp"', '"größe"', '"\\udc00"', "7", "[]")
KEYS = any_of('"id"', '"größe"', '"record"', '"data"', '"\\ud83d"', '"x\\n"', '"\udced\udca0\udc80"', "id")
SCALARS = any_of(
    *(
        '"text"',
        '"\\ud83d"',
        '"\\ud83d\\ude00"',
        '"é\\u0000"',
        '"\udcff"',
        '"\x01"',
        '"\\q"',
        '"\\u12g4"',
        "1",
        "-0.5e+3",
    ),
    *(
        "01",
        "1.",
        "-",
        "1e400",
        "9" * 400,
        "NaN",
        "-Infinity",
        "Inf",
        "true",
        "false",
        "nul",
        "[" * 250 + "]" * 250,
        "[" * 99,
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: f"[{', '.join(values)}]")
        | st.lists(st.builds("{}:{}".format, KEYS, inner), max_size=3).map(lambda values: f"{{{','.join(values)}}}")
    ),
    max_leaves=4,
)
OBJECTS = st.lists(st.builds("{}:{}".format, KEYS, VALUES), max_size=3).map(lambda values: f"{{{','.join(values)}}}")
TIMES = any_of("1700000000000", "1", "-1", "1.5", "1e3", "1e400", "01", '"1"', "null", "NaN")
MEMBERS = any_of('"meta":{"changes":[]}', '"data\\u0020":1', '"\\ud83d":1', '"Data":[]', '"x":[{},', "x:1")


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A line that is a record, or nearly one, or another message."""
    data = draw(st.one_of(st.just('{"id":1}'), OBJECTS, VALUES))
    namespace = draw(st.none() | NAMESPACES)
    members = [f'"stream":{draw(STREAMS)}', f'"data":{data}', f'"emitted_at":{draw(TIMES)}']
    members += [] if namespace is None else [f'"namespace":{namespace}']
    members += draw(st.lists(MEMBERS, max_size=1))
    kind = draw(any_of('"RECORD"', '"STATE"', '"LOG"', '"R\\u0045CORD"', "null"))
    record = draw(st.sampled_from([objects(draw, members)] * 3 + ["null", "[]"]))
    message = objects(draw, [f'"type":{kind}', f'"record":{record}', *draw(st.lists(MEMBERS, max_size=1))])
    before, after = draw(any_of("", " ", "\ufeff", "\x00", "[")), draw(any_of("", "\r", " \t", "}", "\x00", LINE, "1"))
    return (before + message + after).encode("utf-8", "surrogateescape")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A line with a cut end, or with another octet at some position."""
    line = draw(messages() | st.sampled_from(REGULAR))
    at = draw(st.integers(0, len(line) - 1))
    inserted = draw(st.sampled_from([b'"', b"\\", b"{", b"}", b",", b":", b"0", b" ", b"\0", b"\x80", b"\xff", b""]))
    return line[:at] + inserted + draw(st.sampled_from([b"", line[at:], line[at + 1 :]]))


SENT = st.lists(st.sampled_from([*REGULAR, *BLANK, *IRREGULAR]) | messages() | damaged(), max_size=6)


@pytest.mark.law
@settings(max_examples=examples(5000))
@given(lines=SENT, ends=st.booleans())
def test_the_native_scan_yields_the_same_messages_as_reading_line_by_line(lines: list[bytes], ends: bool) -> None:
    chunk = b"".join(line + b"\n" for line in lines)

    assert read_lines([chunk if ends else chunk[:-1]]) == read_one_by_one(chunk)


@pytest.mark.law
@settings(max_examples=examples(5000))
@given(line=messages() | damaged())
def test_the_native_scan_accepts_a_line_only_if_it_is_a_message(line: bytes) -> None:
    """Twice, because the scan skips the beginning of a line that is equal to that of the line before."""
    expected, error = read_one_by_one(line + b"\n")

    read, error_of_scan = read_lines([b"%b\n%b\n" % (line, line)])

    assert error_of_scan == error
    assert [message[:-1] for message in read] == 2 * [message[:-1] for message in expected]


def test_more_runs_than_fit_in_one_call_are_read() -> None:
    lines = [record(stream) for _ in range(3000) for stream in ("orders", "items")]
    chunk = b"".join(line + b"\n" for line in lines)

    items = [*MessageReader().read(chunk)]

    assert [(item.stream, item.first_line) for item in items if isinstance(item, Records)] == [
        (("orders", "items")[number % 2], number + 1) for number in range(6000)
    ]


def test_without_the_native_library_all_lines_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [line for line in [*REGULAR, *BLANK, *IRREGULAR] for _ in range(2)]
    chunk = b"\n".join(lines)
    expected = read_lines([chunk])
    monkeypatch.setattr(native, "PATH", tmp_path / "missing.so")
    native.library.cache_clear()
    try:
        assert native.library() is None
        assert read_lines([chunk]) == expected
    finally:
        native.library.cache_clear()
