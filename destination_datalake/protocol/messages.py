"""Read messages from stdin. Decode only the envelopes of messages; the data of records stay bytes.

The native library (`native/messages.c`) splits the input into runs of consecutive records of the same stream. The
library accepts only regular RECORD lines. This module decodes all other lines one at a time or, if the library is
missing, all lines.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import select
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from destination_datalake import native
from destination_datalake.protocol.json_text import TooDeep, readable

READ_BYTES = 1024 * 1024
QUIET_SECONDS = 1.0


class InputUnreadable(Exception):
    """Raised if stdin cannot be read, for example because it is a folder or open only for writing."""


def chunks(stdin: int, wake: int) -> Iterator[memoryview]:
    """Yield chunks of whole lines from stdin, about READ_BYTES each. The last chunk may lack its final newline.

    A chunk is a view of a buffer, and valid only until the next chunk. An empty chunk means that no data arrived for
    QUIET_SECONDS. Stops at the end of the input, or when the file descriptor `wake` becomes readable. In the latter
    case, drops an incomplete last line. This loses no data, because no state has acknowledged the line. Raises
    InputUnreadable.
    """
    with contextlib.suppress(OSError, AttributeError):
        # A larger pipe reduces context switches between writer and reader. Not every input is a pipe.
        fcntl.fcntl(stdin, fcntl.F_SETPIPE_SZ, READ_BYTES)
    buffer: bytearray | mmap.mmap = bytearray(READ_BYTES)
    filled = 0
    # Not `select`, which does not support descriptors from 1024.
    poll = select.poll()
    for descriptor in (stdin, wake):
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = dict(poll.poll(QUIET_SECONDS * 1000))
        if wake in ready:
            return
        if not ready:
            yield memoryview(b"")
            continue
        try:
            received = os.readv(stdin, [memoryview(buffer)[filled:]])
        except OSError as error:
            raise InputUnreadable(f"Cannot read standard input: {error.strerror}") from error
        if not received:
            break
        # Search only the new bytes: the bytes before them contain no newline.
        end = buffer.rfind(b"\n", filled, filled + received) + 1
        filled += received
        if end:
            yield memoryview(buffer)[:end]
            # Copy these bytes only after the `yield`, when the consumer no longer needs the chunk.
            partial_line = bytes(memoryview(buffer)[end:filled])
            filled = len(partial_line)
            buffer = buffer if len(buffer) == READ_BYTES else _sized(filled)
            buffer[:filled] = partial_line
        elif filled == len(buffer):
            buffer = _doubled(buffer)
    if filled:
        yield memoryview(buffer)[:filled]


def _doubled(buffer: bytearray | mmap.mmap) -> mmap.mmap:
    """Return a buffer with the same content and twice the size. The new pages use no memory until they are written."""
    larger = mmap.mmap(-1, 2 * len(buffer), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    larger[: len(buffer)] = buffer
    return larger


def _sized(length: int) -> bytearray:
    """Return a new buffer with room for `length` remaining bytes. It replaces a buffer that grew for a long line."""
    return bytearray(max(READ_BYTES, 2 * length))


# --- Messages -------------------------------------------------------------------------------------------------------


class MalformedLine(Exception):
    """Raised for a line of stdin that is not a protocol message.

    The text of the exception contains the number of the line and the reason, but does not quote the line.
    """

    def __init__(self, line_number: int, length: int, reason: str) -> None:
        super().__init__(f"Line {line_number} of the input ({length} bytes) is not an Airbyte message: {reason}")


class _AnyObject(msgspec.Struct, gc=False):
    """Any JSON object. The decoder skips the object's members."""


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


class Records(msgspec.Struct, frozen=True, gc=False):
    """Consecutive RECORD lines of one stream.

    `lines` contains `count` lines, each of which ends with a newline. `lines` may be a view of a chunk, and is then
    valid only as long as the chunk. `first_line` is the number of the first of these lines in the whole input, from 1.
    """

    namespace: str | None
    stream: str
    lines: bytes | memoryview
    count: int
    first_line: int


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message other than a RECORD: its type, its unchanged line, and the number of the line in the input, from 1."""

    type: str
    line: bytes
    number: int


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The byte order mark, with which some programs start their UTF-8 output. The reader ignores this mark."""

_decoder = msgspec.json.Decoder(_Envelope)
_typed = msgspec.json.Decoder(_Typed)


class MessageReader:
    """Splits chunks of whole lines into messages. Combines consecutive records of the same stream."""

    def __init__(self) -> None:
        self.lines_read = 0

    def read(self, chunk: bytes | bytearray | memoryview) -> Iterator[Records | Message]:
        """Yield the messages in a chunk of whole lines, in order. The last newline may be missing.

        If a line is not a message, yields the messages before this line, and then raises MalformedLine.
        """
        text = memoryview(chunk if chunk[-1:] in (b"", b"\n") else bytes(chunk) + b"\n")
        while text:
            end = 0
            for start, end, count, stream, namespace in _runs(text):
                if stream is None:
                    yield from self.read_one_by_one(bytes(text[start:end]))
                else:
                    self.lines_read += count
                    yield Records(namespace, stream, text[start:end], count, self.lines_read - count + 1)
            text = text[end:]

    def read_one_by_one(self, lines: bytes) -> Iterator[Records | Message]:
        """Yield the messages like `read`, but decode one line at a time. The last line must end with a newline."""
        # Not `splitlines`, which also splits at carriage returns.
        for text in lines.split(b"\n")[:-1]:
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
                raise MalformedLine(self.lines_read, len(line), "the RECORD has no member record")
            else:
                yield Records(envelope.record.namespace, envelope.record.stream, line + b"\n", 1, self.lines_read)

    def _lenient(self, line: bytes, cause: Exception) -> _Envelope:
        """Decode a line that the strict decoder rejects, for example a line with NaN, lone surrogates or deep nesting.

        Does not check the values of a record, because executors check these values later. Raises MalformedLine.
        """
        # A single line can contain both NaN and bytes that are not UTF-8, and the decoders below require UTF-8.
        utf8 = line.decode("utf-8", "replace").encode()
        try:
            text = readable(utf8)
        except TooDeep:
            envelope = _envelope_of_deep(utf8)
            if envelope is None:
                raise MalformedLine(self.lines_read, len(line), "JSON is malformed, or is not a message") from None
            return envelope
        except msgspec.DecodeError:
            raise MalformedLine(self.lines_read, len(line), f"{cause}") from None
        try:
            kind = _typed.decode(text).type
            # Only a RECORD needs a valid member `record`.
            return _decoder.decode(text) if kind == "RECORD" else _Envelope(type=kind)
        except msgspec.ValidationError as error:
            raise MalformedLine(self.lines_read, len(line), f"{error}") from None


_DEEP_RECORD = pa.struct([("stream", pa.string()), ("namespace", pa.string()), ("data", pa.struct([]))])


def _envelope_of_deep(line: bytes) -> _Envelope | None:
    """Return the envelope of a deeply nested line, or None if the line is not a message.

    Uses Arrow's parser, because this parser is not recursive. If a record is nested too deeply to be encoded, executors
    reject the record later.
    """
    # If `e` replaces the `d` of an escape, a lone surrogate becomes a private character, which Arrow accepts.
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
    """Return a member of the only object in a line. Raises ArrowInvalid if the line is not JSON or has more objects."""
    options = pj.ParseOptions(explicit_schema=pa.schema([member]), unexpected_field_behavior="ignore")
    source: Any = pa.BufferReader(line)
    # Arrow rejects a value that does not fit in one block.
    read = pj.ReadOptions(use_threads=False, block_size=len(line) + 1)
    values = pj.read_json(source, read, options).column(0)
    if len(values) != 1:
        raise pa.ArrowInvalid("the line is not a single object")
    return values[0].as_py()


# --- Runs -----------------------------------------------------------------------------------------------------------


_Run = tuple[int, int, int, str | None, str | None]
"""The start, end, number of lines, stream and namespace of a run of lines. For irregular lines, the stream is None."""

_MAX_RUNS = 1024
"""Maximum number of runs that one call of the native library returns."""


def _runs(text: memoryview) -> Iterator[_Run]:
    """Yield the first runs of a text of whole lines: at least one run, and at most _MAX_RUNS."""
    library: Any = native.library()
    if library is None:
        yield 0, len(text), 0, None, None
        return
    octets = np.frombuffer(text, np.uint8)
    runs = np.empty((_MAX_RUNS, 7), np.int64)  # `struct Run` of messages.c
    split = library.split_messages
    split.restype = ctypes.c_int64
    split.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    count = split(octets.ctypes.data, len(octets), runs.ctypes.data, len(runs))
    for start, end, lines, stream, stream_length, namespace, namespace_length in runs[:count].tolist():
        yield start, end, lines, _name(text, stream, stream_length), _name(text, namespace, namespace_length)


def _name(text: memoryview, start: int, length: int) -> str | None:
    return str(text[start : start + length], "utf-8") if length >= 0 else None
