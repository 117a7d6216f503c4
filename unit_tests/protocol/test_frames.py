"""Frames: which lines have one, how a line becomes flat, and that it comes back byte for byte."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from destination_datalake.protocol.frames import MAX_LEARNED, Frame, Frames, line_bounds
from destination_datalake.protocol.messages import MessageReader, Records

DATA = b'{"id":7,"note":"a }, \\"emitted_at\\":1700000000000}}"}'
LINE = b'{"type":"RECORD","record":{"stream":"s","data":%b,"emitted_at":1700000000000}}' % DATA
BEFORE = b'{"record":{"stream":"s","emitted_at":1700000000000,"data":%b},"type":"RECORD"}' % DATA

FRAMED = [
    pytest.param(LINE, id="Python CDK"),
    pytest.param(
        LINE.replace(b'"stream"', b'"namespace":"public","stream"')[:-2] + b',"meta":{"changes":[]}}}', id="Java CDK"
    ),
    pytest.param(
        b'{"type": "RECORD", "record": {"stream": "s", "data": %b, "emitted_at": 1700000000000}}' % DATA,
        id="json.dumps",
    ),
    pytest.param(
        LINE.replace(b'"record"', b'"log":null,"record"')[:-5] + b',"meta":null},"state":null}',
        id="PyAirbyte: in seconds, with nulls",
    ),
    pytest.param(
        b'{"record":{"stream":"s","data":%b,"emitted_at":1700000000000},"type":"RECORD"}' % DATA, id="type last"
    ),
    pytest.param(BEFORE, id="time before the data"),
    pytest.param(
        BEFORE.replace(b'"data":', b'"namespace":null , "data" : ') + b"\r", id="blanks, and a carriage return"
    ),
    pytest.param(LINE.replace(b'"s"', '"größe"'.encode()), id="a name that is not ASCII"),
    pytest.param(LINE.replace(b'"s"', b'"data"')[:-2] + b',"meta":{"data":{}}}}', id="other data"),
]

UNFRAMED = [
    pytest.param(LINE.replace(b"RECORD", b"STATE"), id="another message"),
    pytest.param(LINE[:-15] + b"1.7e12}}", id="a float"),
    pytest.param(LINE[:-2] + b".5}}", id="a fraction"),
    pytest.param(LINE[:-15] + b"0}}", id="1970"),
    pytest.param(LINE[:-2] + b',"meta":{"changes":[{"field":"id"}]}}}', id="a record with changes"),
    pytest.param(LINE[:-2] + b',"emitted_at":1700000000001}}', id="two times"),
    pytest.param(LINE.replace(b'"stream"', b'"stream":"t","stream"'), id="two streams"),
    pytest.param(LINE.replace(b'"data"', b'"data":{},"data"'), id="two data"),
    pytest.param(LINE[:-1] + b',"record":{"stream":"s","data":{},"emitted_at":1}}', id="two records"),
    pytest.param(LINE.replace(DATA, b"[]"), id="no object"),
    pytest.param(LINE[:-1], id="malformed"),
    pytest.param(b"", id="nothing"),
]


def flattened(frame: Frame, lines: bytes) -> bytes:
    """The lines, flat if they have the frame."""
    text = bytearray(lines)
    octets = np.frombuffer(text, np.uint8)
    starts, ends = line_bounds(octets)
    fits = frame.fits(octets, starts, ends)
    frame.flatten(octets, starts[fits], ends[fits])
    return bytes(text)


def frame_of(line: bytes) -> Frame:
    frame = Frame.of(line)
    assert frame is not None
    return frame


@pytest.mark.parametrize("line", FRAMED)
def test_a_flat_line_is_the_data_with_the_time_and_comes_back_as_received(line: bytes) -> None:
    frame = frame_of(line)
    record: dict[str, Any] = json.loads(line)["record"]
    other = line.replace(DATA, b'{"x": [{}]}').replace(b'_at":17', b'_at":18')

    first, second, _ = flattened(frame, line + b"\n" + other + b"\n").split(b"\n")

    assert json.loads(first) == record["data"] | {frame.key: record["emitted_at"]}
    assert [*json.loads(second)] in (["x", frame.key], [frame.key, "x"])
    assert (frame.restored_line(first), frame.restored_line(second)) == (line, other)
    assert frame.restored(first + b"\n" + second + b"\n") == line + b"\n" + other + b"\n"
    assert (frame.stream, frame.namespace) == (record["stream"], record.get("namespace"))


@pytest.mark.parametrize("line", UNFRAMED)
def test_a_line_that_is_told_by_more_than_data_and_time_has_no_frame(line: bytes) -> None:
    assert Frame.of(line) is None


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace(DATA, b"{}"),
        LINE.replace(b'"s"', b'"t"'),
        LINE + b" ",
        b" " + LINE,
        LINE.replace(b'":1700', b'":0700'),
        LINE.replace(b'":1700', b'":-700'),
        LINE.replace(b'":1700', b'": 700'),
        LINE[:-1],
        b"",
        b"{" * len(LINE),
    ],
)
def test_a_line_that_differs_stays_as_it_is_among_flat_ones(line: bytes) -> None:
    frame = frame_of(LINE)

    text = flattened(frame, LINE + b"\n" + line + b"\n" + LINE + b"\n")

    assert text.split(b"\n")[1] == line
    (flat, flat_numbers), (others, other_numbers) = frame.split(text)
    assert (flat_numbers.tolist(), other_numbers.tolist()) == ([0, 2], [1])
    assert (frame.restored(flat), others) == (2 * (LINE + b"\n"), line + b"\n")
    assert frame.all_restored(flat) == frame.restored(flat)
    assert frame.all_restored(b"") == frame.restored(b"") == b""
    assert frame.restored(text) == LINE + b"\n" + line + b"\n" + LINE + b"\n"


# --- An input


def lines_of(*streams: str, count: int = 1000) -> bytes:
    """Lines of the streams in turn."""
    lines = (
        LINE.replace(b'"s"', f'"{streams[n % len(streams)]}"'.encode()).replace(b":7", b":%d" % n) for n in range(count)
    )
    return b"".join(line + b"\n" for line in lines)


def flat_lines(reader: MessageReader, chunk: bytes) -> int:
    """How many lines of a chunk become flat; whether they do or not, they come back as received and in order."""
    received, flat = b"", 0
    for item in reader.read(chunk):
        assert isinstance(item, Records)
        assert item.first_line == reader.lines_read - item.count + 1
        received += bytes(item.lines) if item.frame is None else item.frame.restored(item.lines)
        flat += item.count if item.frame is not None else 0
    assert received == chunk
    return flat


@pytest.mark.parametrize("streams", [["s"], ["s", "t"], ["s", "t", "u", "v"]])
def test_streams_that_take_turns_have_each_its_frame(streams: list[str]) -> None:
    assert flat_lines(MessageReader(), lines_of(*streams)) == 1000


def test_a_chunk_of_many_streams_or_of_few_lines_is_not_flattened() -> None:
    assert flat_lines(MessageReader(), lines_of(*map(str, range(100)))) == 0
    assert flat_lines(MessageReader(), lines_of("s", count=10)) == 0


def test_a_stream_of_which_the_frame_changes_gets_another_one() -> None:
    reader = MessageReader()
    changed = lines_of("s").replace(b"000}}\n", b'000,"meta":{}}}\n')

    assert [flat_lines(reader, lines) for lines in (lines_of("s"), changed, lines_of("s"))] == [1000, 1000, 1000]


def test_frames_of_a_stream_that_change_all_the_time_are_given_up() -> None:
    reader = MessageReader()

    chunks = [lines_of("s").replace(b'{"type"', b'{"n":%d,"type"' % number) for number in range(MAX_LEARNED + 1)]

    assert [flat_lines(reader, chunk) for chunk in chunks] == [1000] * MAX_LEARNED + [0]


def test_lines_are_compared_again_some_time_after_a_chunk_of_others() -> None:
    reader = MessageReader()
    many = lines_of(*map(str, range(100)))

    assert [flat_lines(reader, chunk) for chunk in (lines_of("s"), many, many)] == [1000, 0, 0]
    assert 1000 in [flat_lines(reader, lines_of("s")) for _ in range(3)]


def test_without_frames_nothing_is_written_to_the_chunk() -> None:
    text = bytearray(lines_of(*map(str, range(100))))
    octets = np.frombuffer(text, np.uint8)

    assert Frames().flatten(octets, *line_bounds(octets)) is None
    assert text == lines_of(*map(str, range(100)))
