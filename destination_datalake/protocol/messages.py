"""From bytes on stdin to message envelopes: only the envelope is decoded, a record's data stays bytes.

The hot path decodes a whole chunk of lines in one call. A chunk in which anything is odd is read again line by line,
which finds the line to blame and accepts what the fast decoder is too strict for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from destination_datalake.protocol.json_text import readable


class MalformedLine(Exception):
    """A line of stdin is not a message of the protocol. The text says where and why, never what the line held."""

    def __init__(self, line_number: int, length: int, reason: str) -> None:
        super().__init__(f"Line {line_number} of the input ({length} bytes) is not an Airbyte message: {reason}")


class _AnyObject(msgspec.Struct, gc=False):
    """An object whose members nobody looks at: decoding checks that it is one and skips them all."""


class _RecordHead(msgspec.Struct, gc=False):
    stream: str
    data: _AnyObject
    emitted_at: int | float
    namespace: str | None = None


class _Envelope(msgspec.Struct, gc=False):
    type: str
    record: _RecordHead | None = None


class _Typed(msgspec.Struct):
    type: str


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive RECORD lines of one stream: their bytes, each line ended by a newline, and how many they are.

    `lines` may be a view of the chunk that was read, and is good for as long as that is.
    """

    namespace: str | None
    stream: str
    lines: bytes | memoryview
    count: int


@dataclass(frozen=True, slots=True)
class Message:
    """Any line that is not a RECORD, as the JSON object it is, with numbers and unknown members as received."""

    type: str
    line: bytes
    number: int


_NEWLINE, _OPENING, _CLOSING = b"\n{}"

_PIECE = 8 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Says that a text is UTF-8. Some programs begin their output with it, and it is no part of the line."""

_decoder = msgspec.json.Decoder(_Envelope)
_typed = msgspec.json.Decoder(_Typed)


class MessageReader:
    """Turns chunks of whole lines into runs of records and single other messages, in order."""

    def __init__(self) -> None:
        self.lines_read = 0

    def read(self, chunk: bytes | memoryview) -> Iterator[Records | Message]:
        """Read whole lines; the last needs no newline.

        Raises MalformedLine at the first line that is no message, after all that stands before it was yielded.
        """
        if not chunk:
            return
        text = chunk if chunk[-1:] == b"\n" else bytes(chunk) + b"\n"
        try:
            envelopes = _decoder.decode_lines(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            envelopes = []
        octets = np.frombuffer(text, np.uint8)
        if len(envelopes) == _lines_in(octets):
            yield from self._grouped(text, octets, envelopes)
        else:
            yield from self._line_by_line(bytes(text))

    def _grouped(
        self, text: bytes | memoryview, octets: np.ndarray[Any, np.dtype[np.uint8]], envelopes: list[_Envelope]
    ) -> Iterator[Records | Message]:
        """Cut the text wherever the stream changes or a message that is no record stands."""
        runs = _runs(envelopes)
        first = envelopes[0]
        if len(runs) == 1 and first.type == "RECORD" and first.record is not None:
            self.lines_read += len(envelopes)
            yield Records(first.record.namespace, first.record.stream, text, len(envelopes))
            return
        ends = np.flatnonzero(octets == _NEWLINE) + 1
        starts = np.concatenate(([0], ends[:-1]))
        if not (np.all(octets[starts] == _OPENING) and np.all(octets[ends - 2] == _CLOSING)):
            # As many messages as lines need not be one on each: two may share a line where another is blank.
            yield from self._line_by_line(bytes(text))
            return
        for start, end in runs:
            head = envelopes[start]
            if head.type == "RECORD" and head.record is not None:
                self.lines_read += end - start
                lines = text[starts[start] : ends[end - 1]]
                yield Records(head.record.namespace, head.record.stream, lines, end - start)
                continue
            for index in range(start, end):
                self.lines_read += 1
                line = bytes(text[starts[index] : ends[index] - 1])
                if envelopes[index].type == "RECORD":
                    raise MalformedLine(self.lines_read, len(line), "a RECORD without a record")
                yield Message(envelopes[index].type, line, self.lines_read)

    def _line_by_line(self, chunk: bytes) -> Iterator[Records | Message]:
        for text in chunk.split(b"\n")[:-1]:
            self.lines_read += 1
            line = text.removeprefix(_BYTE_ORDER_MARK)
            if not line.strip():
                continue
            try:
                envelope = _decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                envelope = self._lenient(line, error)
            if envelope.type != "RECORD":
                yield Message(envelope.type, line, self.lines_read)
            elif envelope.record is None:
                raise MalformedLine(self.lines_read, len(line), "a RECORD without a record")
            else:
                yield Records(envelope.record.namespace, envelope.record.stream, line + b"\n", 1)

    def _lenient(self, line: bytes, cause: Exception) -> _Envelope:
        """Accept what only the strict decoder refuses (NaN, lone surrogates, deep nesting, a non-record's `record`).

        What it accepts in a record's data is the careful row path's business later.
        """
        try:
            text = readable(line)
        except msgspec.DecodeError as error:
            reason = error if isinstance(cause, RecursionError) else cause
            raise MalformedLine(self.lines_read, len(line), f"{reason}") from None
        try:
            kind = _typed.decode(text).type
            return _decoder.decode(text) if kind == "RECORD" else _Envelope(type=kind)
        except msgspec.ValidationError as error:
            raise MalformedLine(self.lines_read, len(line), f"{error}") from None


def _lines_in(octets: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    """How many newlines there are; a huge line is looked at in pieces, each of which takes as much memory again."""
    return sum(
        int(np.count_nonzero(octets[start : start + _PIECE] == _NEWLINE)) for start in range(0, len(octets), _PIECE)
    )


def _runs(envelopes: list[_Envelope]) -> list[tuple[int, int]]:
    """Half-open ranges of neighbours that are records of one stream, or that are no records."""
    runs: list[tuple[int, int]] = []
    start = 0
    stream: str | None = None
    namespace: str | None = None
    for index, envelope in enumerate(envelopes):
        record = envelope.record if envelope.type == "RECORD" else None
        if record is None:
            if stream is None and index:
                continue
            next_stream = next_namespace = None
        elif record.stream == stream and record.namespace == namespace:
            continue
        else:
            next_stream, next_namespace = record.stream, record.namespace
        stream, namespace = next_stream, next_namespace
        if index:
            runs.append((start, index))
        start = index
    runs.append((start, len(envelopes)))
    return runs
