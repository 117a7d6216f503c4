"""Frames from stdin to columns: whatever the lines, what is kept is what it is when every line is read alone."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.protocol.frames import Frame
from destination_datalake.protocol.messages import MalformedLine, MessageReader, Records
from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.record import RejectedRecord, record_coercer
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import Boolean, Field, Float64, Int64, Json, List, String, Struct, Timestamp
from unit_tests.examples import examples

pytestmark = pytest.mark.share(9)

COLUMNS = [
    Field("id", "id", Int64()),
    Field("n", "n", Float64()),
    Field("s", "s", String()),
    Field("t", "t", Timestamp(zoned=True)),
    Field("b", "b", Boolean()),
    Field("o", "o", Struct((Field("x", "x", Int64()), Field("l", "l", List(Int64()))))),
    Field("j", "j", Json()),
]
PLAIN_COLUMNS = COLUMNS[:6]

Key = tuple[str | None, str]


# --- What is sent

Style = Callable[[str, str, int], str]
"""From a stream, the text of data and a time to a line."""

STYLES: list[Style] = [
    lambda s, d, t: f'{{"type":"RECORD","record":{{"stream":"{s}","data":{d},"emitted_at":{t}}}}}',
    lambda s, d, t: f'{{"type": "RECORD", "record": {{"stream": "{s}", "data": {d}, "emitted_at": {t}}}}}',
    lambda s, d, t: f'{{"record":{{"stream":"{s}","emitted_at":{t},"data":{d}}},"type":"RECORD"}}',
    lambda s, d, t: (
        f'{{"type":"RECORD","record":{{"namespace":"n","stream":"{s}","data":{d},"emitted_at":{t},'
        '"meta":{"changes":[]}}}'
    ),
    lambda s, d, t: f'{{"type":"RECORD","log":null,"record":{{"data":{d},"emitted_at":{t // 1000},"stream":"{s}"}}}}\r',
]

WITHIN: list[str] = [
    '"n":1.5,"id":1.5',
    '"id":9223372036854775808',
    '"n":NaN',
    '"n":-Infinity,"s":null',
    '"n":1e400',
    '"x":1e400',
    '"s":"\\ud83d"',
    '"s":"\\ud83d\\ude00 }, \\"emitted_at\\":1700000000000}}"',
    '"s":"\udcff"',
    '"id":2,"id":3',
    '"emitted_at":5',
    '"s":"},\\"emitted_at\\":1700000000000}}"',
    '"emitted_at":{"emitted_at":1700000000000}',
    '"id":"7"',
    '"id":"x","b":1',
    '"t":"2024-02-29"',
    '"t":"never"',
    '"o":{"x":"y","l":[1,null,"z"]}',
    '"o":[1]',
    '"j":{"a":NaN},"o":null',
    ' "id" : 4 ',
    "",
    " ",
    '"record":{"stream":"other","data":{"id":1}}',
    '"s":"\\u0000"',
]
"""Members of data within a right frame that are odd, and JSON to the connector."""

DEEP = '"deep":' + "[" * 2000 + "]" * 2000
"""Such values are followed where no column reads them, unless their line is read alone."""

BROKEN: list[str] = [
    '"id":1,',
    ',"id":1',
    '"id":1} {"id":2',
    '"id":1},"emitted_at":1}} {"type":"RECORD","record":{"stream":"a","data":{"id":2',
    '"id"',
    '"s":"\x01"',
    '"s":"\\q"',
    '"id":01',
    '"id":1\x00',
    '"id":1}\x00{"id":2',
    '"id":1}}',
    '"o":{"x":1',
    '"id":[1',
    "'id':1",
    '"n":Inf',
    '"id":1 /**/',
    '"deep":' + "[" * 2000 + "]" * 1999,
]
"""Data that are no members, but stand in a right frame."""

REPEATED = ['"id":1},"data":{"id":2', '"id":1},"x":{"id":2']
"""Members that close the data and open another object: the line is JSON, and its last data count."""


def odd_lines(style: Style, stream: str, number: int) -> list[str]:
    """Lines that no frame has, all of them messages."""
    line = style(stream, f'{{"id":{number}}}', 1_700_000_000_000)
    return [
        line.replace("000}", '000,"meta":{"changes":[{"field":"id","change":"NULLED","reason":"SOURCE"}]}}'),
        style(stream, f'{{"id":{number}}}', 1_700_000_000).replace("1700000", '1.7e12,"x":1700000', 1),
        line.replace("1700000000000", "1700000000000.5").replace("1700000000", "1700000000"),
        line.replace("1700000000000", "-5"),
        line.replace("1700000000000", "99999999999999999"),
        f"\ufeff{line}",
        f"  {line} ",
        f"{line}\r",
        "",
        "\t",
        f'{{"type":"STATE","state":{{"n":{number}}}}}',
        '{"type":"LOG","log":{"level":"INFO","message":"x"}}',
        style("other", f'{{"id":{number}}}', 1_700_000_000_000),
        line.replace(f'"{stream}"', f'"{stream}","x":"{stream}"', 1),
    ]


def data(dice: random.Random, number: int) -> str:
    members = [
        f'"id":{number}', f'"n":{dice.random()}', f'"s":"text {dice.random()}"', '"t":"2024-02-29T12:00:00Z"',
        '"b":true', '"o":{"x":1,"l":[1,2]}', '"j":{"k":[1,{"z":null}]}', f'"more":"{"y" * dice.randrange(100)}"',
    ]  # fmt: skip
    return "{" + ",".join(members[: dice.choice([3, 8, 8, 8])]) + "}"


def an_input(seed: int, odd: Sequence[str]) -> list[bytes]:
    """Some hundred lines of one to three streams in their styles, a few of them odd."""
    dice = random.Random(seed)
    styles = {stream: dice.choice(STYLES) for stream in ("a", "b", "c")[: dice.randrange(1, 4)]}
    turns = dice.choice([1, 40])
    share = dice.choice([0, 0.002, 0.02, 0.06])
    lines = []
    for number in range(dice.choice([150, 400, 900])):
        stream = [*styles][number // turns % len(styles)]
        text, style = data(dice, number), styles[stream]
        if dice.random() < share:
            text = f"{{{dice.choice(odd)}}}" if dice.random() < 0.7 else text
            lines.append(dice.choice([style(stream, text, 1_700_000_000_123), *odd_lines(style, stream, number)]))
        else:
            lines.append(style(stream, text, 1_700_000_000_000 + number))
    return [line.encode("utf-8", "surrogateescape").replace(b"\n", b"") for line in lines]


# --- What is kept


@dataclass
class Kept:
    """Messages that are not records; the rows, changes and refused lines of each stream; the error."""

    messages: list[tuple[str, bytes, int]] = field(default_factory=list)
    rows: dict[Key, list[tuple[Any, ...]]] = field(default_factory=dict)
    refused: dict[Key, list[tuple[bytes, str]]] = field(default_factory=dict)
    error: str | None = None


@dataclass
class Segment:
    """What a buffer keeps of a stream."""

    lines: bytes = b""
    numbers: list[int] = field(default_factory=list)
    frame: Frame | None = None
    flat: int = 0


def comparable(value: Any) -> Any:
    return json.dumps(value, default=str) if not (isinstance(value, float) and math.isnan(value)) else "NaN"


def with_frames(lines: Sequence[bytes], columns: Sequence[Field], chunks: int = 2) -> Kept:
    """What the connector keeps: chunks are read, segments written, and their blocks decoded."""
    kept, reader, error = Kept(), MessageReader(), None
    segments: dict[Key, list[Segment]] = {}
    size = -(-len(lines) // chunks)
    try:
        for start in range(0, len(lines), size):
            for item in reader.read(b"".join(line + b"\n" for line in lines[start : start + size])):
                if not isinstance(item, Records):
                    kept.messages.append((item.type, item.line, item.number))
                    continue
                of_stream = segments.setdefault((item.namespace, item.stream), [Segment()])
                if item.frame is not None and of_stream[-1].frame not in (None, item.frame):
                    of_stream.append(Segment())
                segment = of_stream[-1]
                segment.lines += bytes(item.lines)
                segment.numbers += range(item.first_line, item.first_line + item.count)
                segment.frame = item.frame or segment.frame
                segment.flat += item.count if item.frame is not None else 0
    except MalformedLine as malformed:
        error = malformed
    found = [] if error is None else [error]
    for stream, of_stream in segments.items():
        for segment in of_stream:
            decoder = BlockDecoder(columns)
            try:
                _decode(decoder, segment, stream, kept)
            except MalformedLine as malformed:
                number = segment.numbers[malformed.line_number - 1]
                found.append(MalformedLine(number, malformed.length, malformed.reason))
    kept.error = str(min(found, key=lambda each: each.line_number)) if found else None
    return kept


def _decode(decoder: BlockDecoder, segment: Segment, stream: Key, kept: Kept) -> None:
    rows: list[tuple[int, tuple[Any, ...]]] = []
    lines = segment.lines.split(b"\n")[:-1]
    half = len(lines) // 2
    for part in (lines[:half], lines[half:]):
        block = b"".join(line + b"\n" for line in part)
        if not block:
            continue
        for decoded in decoder.decode(block, segment.frame, mixed=0 < segment.flat < len(segment.numbers)):
            arrays: list[list[Any]] = [column.to_pylist() for column in decoded.columns]
            times: list[Any] = decoded.extracted_at.to_pylist()
            changes: Any = [[]] * decoded.rows if decoded.changes is None else decoded.changes.to_pylist()
            # White space around a record is nothing that a report of its changes keeps.
            changed = {each.row: (each.line.strip(), len(each.changes)) for each in decoded.changed}
            for row, number in enumerate(decoded.line_numbers):
                values = [comparable(array[row]) for array in arrays]
                noted = [tuple(each.values()) for each in changes[row]]
                rows.append((int(number), (values, str(times[row]), noted, changed.get(row))))
            for rejected in decoded.rejected:
                kept.refused.setdefault(stream, []).append((rejected.line, rejected.reason))
    kept.rows.setdefault(stream, []).extend(row for _, row in sorted(rows, key=lambda each: each[0]))


def line_by_line(lines: Sequence[bytes], columns: Sequence[Field]) -> Kept:
    """What is kept if each line is read alone: its envelope is decoded, and its record by the careful rule."""
    kept, reader = Kept(), MessageReader()
    coerce = record_coercer(columns)
    types = [arrow_type(widest(column.type)) for column in columns]
    try:
        for line in lines:
            for item in reader.read_envelopes(line + b"\n"):
                if not isinstance(item, Records):
                    kept.messages.append((item.type, item.line, item.number))
                    continue
                stream, text = (item.namespace, item.stream), bytes(item.lines)[:-1]
                try:
                    row = coerce(text)
                except RejectedRecord as error:
                    kept.refused.setdefault(stream, []).append((text, error.reason))
                    continue
                found: list[Any] = [pa.array([v], type_)[0].as_py() for v, type_ in zip(row.values, types, strict=True)]
                noted = [(each.field, each.change, each.reason) for each in row.changes]
                own = row.changes[row.reported :]
                when = pa.array([row.emitted_at], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))[0].as_py()
                values = [comparable(value) for value in found]
                changed = (text.strip(), len(own)) if own else None
                kept.rows.setdefault(stream, []).append((values, str(when), noted, changed))
    except MalformedLine as error:
        kept.error = str(error)
    return kept


def sorted_refused(kept: Kept) -> dict[Key, list[tuple[bytes, str]]]:
    return {stream: sorted(lines) for stream, lines in kept.refused.items()}


# --- The laws


@pytest.mark.law
@pytest.mark.parametrize("columns", [COLUMNS, PLAIN_COLUMNS, []], ids=["JSON text", "no JSON text", "no columns"])
@settings(max_examples=examples(500))
@given(seed=st.integers(0, 10**9))
def test_odd_lines_are_decoded_as_without_a_frame(columns: list[Field], seed: int) -> None:
    lines = an_input(seed, WITHIN)

    kept, alone = with_frames(lines, columns), line_by_line(lines, columns)

    assert (kept.error, alone.error) == (None, None)
    assert kept.messages == alone.messages
    assert {stream: rows for stream, rows in kept.rows.items() if rows} == alone.rows
    assert sorted_refused(kept) == sorted_refused(alone)


@pytest.mark.law
@pytest.mark.parametrize("columns", [COLUMNS, PLAIN_COLUMNS], ids=["JSON text", "no JSON text"])
@settings(max_examples=examples(500))
@given(seed=st.integers(0, 10**9))
def test_malformed_line_is_reported_as_without_a_frame(columns: list[Field], seed: int) -> None:
    lines = an_input(seed, [*WITHIN, DEEP, *BROKEN])

    assert with_frames(lines, columns).error == line_by_line(lines, columns).error


@pytest.mark.parametrize("members", BROKEN)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.share(20)
def test_data_that_are_not_json_are_found_in_every_frame(style: Style, members: str) -> None:
    lines = [style("a", f'{{"id":{n},"s":"{"x" * 100}"}}', 1_700_000_000_000 + n).encode() for n in range(400)]
    lines[333] = style("a", f"{{{members}}}", 1_700_000_000_000).encode()

    kept, alone = with_frames(lines, COLUMNS), line_by_line(lines, COLUMNS)

    assert alone.error is not None
    assert alone.error.startswith("Line 334 of the input (")
    assert kept.error == alone.error


@pytest.mark.parametrize("members", REPEATED)
def test_data_that_are_repeated_within_a_frame_are_the_last_ones(members: str) -> None:
    lines = [STYLES[0]("a", f'{{"id":{n},"s":"{"x" * 100}"}}', 1_700_000_000_000 + n).encode() for n in range(400)]
    lines[200] = STYLES[0]("a", f"{{{members}}}", 1_700_000_000_000).encode()

    kept, alone = with_frames(lines, COLUMNS), line_by_line(lines, COLUMNS)

    assert (kept.error, kept.rows) == (alone.error, alone.rows)
