"""Reading of messages from standard input. Only the envelope is decoded; the data of a record stays bytes.

The hot path compares all lines of a chunk with the frames of their streams (`frames`). For lines without a frame, the
envelopes of a whole chunk are decoded in one call. A chunk with an irregular line is read again line by line, to accept
texts that the strict decoder rejects unnecessarily, and to find the malformed line.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from destination_datalake.protocol.frames import Frame, Frames, Octets, Positions, line_bounds
from destination_datalake.protocol.json_text import TooDeep, readable

READ_BYTES = 1024 * 1024
QUIET_SECONDS = 1.0


class InputUnreadable(Exception):
    """Standard input cannot be read, for example because it is a folder or open only for writing."""


def chunks(stdin: int, wake: int) -> Iterator[memoryview]:
    """Yield chunks of whole lines of about READ_BYTES. The last chunk may not end with a newline.

    A chunk is a view of a buffer that the next chunk overwrites. An empty chunk means that no data arrived for
    QUIET_SECONDS. Stops at the end of the input, or when `wake` (a file descriptor) is readable. An incomplete line is
    then dropped, because it was never acknowledged. Raises InputUnreadable.
    """
    with contextlib.suppress(OSError, AttributeError):
        # A larger pipe reduces context switches between writer and reader. Not every input is a pipe.
        fcntl.fcntl(stdin, fcntl.F_SETPIPE_SZ, READ_BYTES)
    buffer: bytearray | mmap.mmap = bytearray(READ_BYTES)
    filled = 0
    while True:
        readable, _, _ = select.select([stdin, wake], [], [], QUIET_SECONDS)
        if wake in readable:
            return
        if not readable:
            yield memoryview(b"")
            continue
        try:
            received = os.readv(stdin, [memoryview(buffer)[filled:]])
        except OSError as error:
            raise InputUnreadable(f"Standard input cannot be read: {error.strerror}") from error
        if not received:
            break
        end = buffer.rfind(b"\n", filled, filled + received) + 1
        filled += received
        if end:
            yield memoryview(buffer)[:end]
            rest = bytes(memoryview(buffer)[end:filled])
            buffer = buffer if len(buffer) == READ_BYTES else _sized(len(rest))
            buffer[: len(rest)] = rest
            filled = len(rest)
        elif filled == len(buffer):
            buffer = _doubled(buffer)
    if filled:
        yield memoryview(buffer)[:filled]


def _doubled(buffer: bytearray | mmap.mmap) -> mmap.mmap:
    """Return a buffer of twice the size with the same content. Its pages use no memory until they are written."""
    larger = mmap.mmap(-1, 2 * len(buffer), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    larger[: len(buffer)] = buffer
    return larger


def _sized(length: int) -> bytearray:
    """Return a buffer for the remaining `length` bytes of a larger one, to free the space of a long line."""
    return bytearray(max(READ_BYTES, 2 * length))


# --- Messages -------------------------------------------------------------------------------------------------------


class MalformedLine(Exception):
    """A line of stdin that is not a protocol message. The text contains its number and the reason, not its content."""

    def __init__(self, line_number: int, length: int, reason: str) -> None:
        super().__init__(f"Line {line_number} of the input ({length} bytes) is not an Airbyte message: {reason}")
        self.line_number, self.length, self.reason = line_number, length, reason


class _AnyObject(msgspec.Struct, gc=False):
    """A JSON object whose members are skipped."""


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
    """Consecutive RECORD lines of one stream: their bytes, each ending with a newline, and their count.

    `lines` may be a view of the chunk, and is valid only as long as the chunk. `first_line` is the number of the first
    line in the input. With a `frame`, the lines are flat and their data may not be valid JSON.
    """

    namespace: str | None
    stream: str
    lines: bytes | memoryview
    count: int
    first_line: int
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A line that is not a RECORD, as received, with its number in the input."""

    type: str
    line: bytes
    number: int


_RETURN, _OPENING, _CLOSING = b"\r{}"

_MIN_FRAMED = 32 * 1024
"""The minimum size of a chunk for a comparison with frames. Decoding a smaller one is faster."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs start their UTF-8 output with it. It is not part of the line."""

_decoder = msgspec.json.Decoder(_Envelope)
_typed = msgspec.json.Decoder(_Typed)


class MessageReader:
    """Splits chunks of whole lines into runs of records of one stream, and other messages, in order."""

    def __init__(self) -> None:
        self.lines_read = 0
        self._frames = Frames()

    def read(self, chunk: bytes | bytearray | memoryview) -> Iterator[Records | Message]:
        """Yield the messages of whole lines. The last newline may be missing. Lines are flattened in the chunk.

        Raises MalformedLine for the first line that is not a message, after yielding the messages before it.
        """
        if len(chunk) < _MIN_FRAMED:
            yield from self.read_envelopes(chunk)
            return
        text = memoryview(_ended(chunk))
        if text.readonly:
            text = memoryview(bytearray(text))
        octets = np.frombuffer(text, np.uint8)
        starts, ends = line_bounds(octets)
        flattened = self._frames.flatten(octets, starts, ends)
        if flattened is None:
            yield from self._envelopes(text, octets, starts, ends)
            return
        frames, frame_indexes = flattened
        for first, end in pairwise([0, *(np.flatnonzero(np.diff(frame_indexes)) + 1).tolist(), len(ends)]):
            lines, count = text[starts[first] : ends[end - 1] + 1], end - first
            if frame_indexes[first] < 0:
                yield from self._line_by_line(bytes(lines))
                continue
            frame = frames[frame_indexes[first]]
            self.lines_read += count
            yield Records(frame.namespace, frame.stream, lines, count, self.lines_read - count + 1, frame)

    def read_envelopes(self, chunk: bytes | bytearray | memoryview) -> Iterator[Records | Message]:
        """Yield the messages like `read`, but decode all of them and do not flatten lines."""
        if chunk:
            text = _ended(chunk)
            octets = np.frombuffer(text, np.uint8)
            yield from self._envelopes(text, octets, *line_bounds(octets))

    def _envelopes(
        self, text: bytes | memoryview, octets: Octets, starts: Positions, ends: Positions
    ) -> Iterator[Records | Message]:
        try:
            envelopes = _decoder.decode_lines(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            envelopes = []
        if len(envelopes) == len(ends) and _are_messages(octets, starts, ends):
            yield from self._grouped(text, starts, ends, envelopes)
        else:
            yield from self._line_by_line(bytes(text))

    def _grouped(
        self, text: bytes | memoryview, starts: Positions, ends: Positions, envelopes: list[_Envelope]
    ) -> Iterator[Records | Message]:
        """Split the text at changes of the stream and at messages that are not records."""
        runs = _runs(envelopes)
        first = envelopes[0]
        if len(runs) == 1 and first.type == "RECORD" and first.record is not None:
            self.lines_read += len(envelopes)
            first_line = self.lines_read - len(envelopes) + 1
            yield Records(first.record.namespace, first.record.stream, text, len(envelopes), first_line)
            return
        for start, end in runs:
            head = envelopes[start]
            if head.type == "RECORD" and head.record is not None:
                self.lines_read += end - start
                lines, first_line = text[starts[start] : ends[end - 1] + 1], self.lines_read - (end - start) + 1
                yield Records(head.record.namespace, head.record.stream, lines, end - start, first_line)
                continue
            for index in range(start, end):
                self.lines_read += 1
                line = bytes(text[starts[index] : ends[index]])
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
                yield Records(envelope.record.namespace, envelope.record.stream, line + b"\n", 1, self.lines_read)

    def _lenient(self, line: bytes, cause: Exception) -> _Envelope:
        """Decode a line with NaN, lone surrogates, deep nesting, or `record` in another message.

        Values in a record's data are checked when the record is encoded.
        """
        try:
            text = readable(line)
        except TooDeep:
            envelope = _envelope_of_deep(line)
            if envelope is None:
                raise MalformedLine(self.lines_read, len(line), "JSON is malformed, or not a message") from None
            return envelope
        except msgspec.DecodeError:
            raise MalformedLine(self.lines_read, len(line), f"{cause}") from None
        try:
            kind = _typed.decode(text).type
            return _decoder.decode(text) if kind == "RECORD" else _Envelope(type=kind)
        except msgspec.ValidationError as error:
            raise MalformedLine(self.lines_read, len(line), f"{error}") from None


_DEEP_RECORD = pa.struct([("stream", pa.string()), ("namespace", pa.string()), ("data", pa.struct([]))])


def _envelope_of_deep(line: bytes) -> _Envelope | None:
    """Return the envelope of a line with any depth; None if it has none. Arrow's parser does not recurse.

    Executors reject a record that is too deep for them.
    """
    # With `e` instead of `d`, escaped lone surrogates become private characters, which Arrow accepts.
    for text in (line, line.replace(rb"\ud", rb"\ue").replace(rb"\uD", rb"\uE")):
        try:
            kind = _member(text, pa.field("type", pa.string()))
            if kind is None:
                return None
            if kind != "RECORD":
                return _Envelope(kind)
            record = _member(text, pa.field("record", _DEEP_RECORD))
        except (pa.ArrowInvalid, UnicodeDecodeError):
            continue
        if record is None or record["stream"] is None or record["data"] is None:
            return None
        return _Envelope(kind, _RecordHead(record["stream"], _AnyObject(), 0, record["namespace"]))
    return None


def _member(line: bytes, member: pa.Field[Any]) -> Any:
    options = pj.ParseOptions(explicit_schema=pa.schema([member]), unexpected_field_behavior="ignore")
    source: Any = pa.BufferReader(line)
    read = pj.ReadOptions(use_threads=False, block_size=len(line) + 1)
    return pj.read_json(source, read, options).column(0)[0].as_py()


def _ended(chunk: bytes | bytearray | memoryview) -> Any:
    return chunk if chunk[-1:] == b"\n" else bytes(chunk) + b"\n"


def _are_messages(octets: Octets, starts: Positions, ends: Positions) -> bool:
    """Return whether every line starts and ends with the braces of one message.

    Equal numbers of messages and lines are not sufficient: a line may contain two messages while another is blank.
    """
    last = octets[ends - 1]
    if _RETURN in last:
        last = np.where(last == _RETURN, octets[ends - 2], last)
    return bool(np.all(octets[starts] == _OPENING) and np.all(last == _CLOSING))


def _runs(envelopes: list[_Envelope]) -> list[tuple[int, int]]:
    """Return half-open ranges of consecutive records of one stream, and of consecutive other messages."""
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


def require_records(lines: bytes, frame: Frame) -> None:
    """Check the envelopes of lines with a frame whose data could not be read as expected.

    Raises MalformedLine, with its number among these lines, for the first that is not a record of the frame's stream.
    """
    reader = MessageReader()
    for item in reader.read_envelopes(lines):
        if not isinstance(item, Records):
            raise MalformedLine(item.number, len(item.line), _REPEATED)
        if (item.namespace, item.stream) != (frame.namespace, frame.stream):
            raise MalformedLine(item.first_line, bytes(item.lines).index(b"\n"), _REPEATED)


_REPEATED = "its envelope has repeated members"
