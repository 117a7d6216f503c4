"""Split chunks of input into records, grouped by stream, and the states between them. Keep the order of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from destination_datalake.protocol.catalog import (
    AmbiguousStream,
    Stream,
    StreamDescriptor,
    StreamFinder,
    StreamId,
    UnknownStream,
)
from destination_datalake.protocol.json_text import TooDeep, decode
from destination_datalake.protocol.messages import MalformedLine, Message, MessageReader, Records
from destination_datalake.protocol.states import InvalidState, State, parse_state

_IGNORED = frozenset({"LOG", "CONTROL", "SPEC", "CONNECTION_STATUS", "CATALOG", "DESTINATION_CATALOG"})


class UnexpectedMessage(Exception):
    """Raised for a message that does not belong to this sync. The text of the exception never quotes the message."""


@dataclass(slots=True)
class StreamRecords:
    """Record lines of one stream: the bytes of the lines in pieces, and the number of lines.

    The pieces are only valid as long as the chunk from which they were read.
    """

    pieces: list[bytes | memoryview] = field(default_factory=list)
    count: int = 0

    def add(self, records: Records) -> None:
        """Add consecutive record lines."""
        self.pieces.append(records.lines)
        self.count += records.count


class Intake:
    """Reads chunks of input for the streams of one sync. Calls `warn` once for each unknown type of message."""

    def __init__(self, streams: Iterable[StreamId], statuses: Statuses, warn: Callable[[str], None]) -> None:
        self._finder = StreamFinder(streams)
        self._statuses = statuses
        self._warn = warn
        self._reader = MessageReader()
        self._found: dict[tuple[str | None, str], StreamId] = {}
        self._unknown_types: set[str] = set()

    def steps(self, chunk: bytes | memoryview) -> Iterator[Mapping[StreamId, StreamRecords] | State]:
        """Yield the records and the states of a chunk in order.

        All records between two states are yielded as one mapping by stream. For the first invalid line, raises
        MalformedLine or UnexpectedMessage after yielding the messages before it.
        """
        read: defaultdict[StreamId, StreamRecords] = defaultdict(StreamRecords)
        try:
            for item in self._reader.read(chunk):
                if isinstance(item, Records):
                    read[self._stream_of(item)].add(item)
                    continue
                state = self._state_in(item)
                if state is None:
                    continue
                if read:
                    yield read
                    read = defaultdict(StreamRecords)
                yield state
        except (MalformedLine, UnexpectedMessage):
            if read:
                yield read
            raise
        if read:
            yield read

    def _stream_of(self, records: Records) -> StreamId:
        known = self._found.get((records.namespace, records.stream))
        if known is None:
            known = self._find("record", records.first_line, records.namespace, records.stream)
            self._found[(records.namespace, records.stream)] = known
        return known

    def _find(self, what: str, line: int, namespace: str | None, name: str) -> StreamId:
        try:
            return self._finder.find(namespace, name)
        except UnknownStream as error:
            named = StreamId(namespace or None, name)
            raise UnexpectedMessage(f"Line {line} of the input is a {what} for stream {named}, {error}") from None

    def _state_in(self, message: Message) -> State | None:
        """Return the state in a message, with its stream as named in the catalog.

        Return None if the message is not a STATE.
        """
        if message.type == "TRACE":
            self._read_trace(message)
        elif message.type == "STATE":
            try:
                state = parse_state(message.line)
            except InvalidState as error:
                raise UnexpectedMessage(f"Line {message.number} of the input is {error}") from None
            if state.stream is None:
                return state
            return replace(state, stream=self._find("state", message.number, *state.stream))
        elif message.type not in _IGNORED and message.type not in self._unknown_types:
            self._unknown_types.add(message.type)
            self._warn(f"Messages of the unknown type {message.type[:50]!r} are ignored.")
        return None

    def _read_trace(self, message: Message) -> None:
        try:
            self._statuses.read_trace(message.line)
        except msgspec.DecodeError as error:
            raise UnexpectedMessage(
                f"Line {message.number} of the input is a TRACE that cannot be read: {error}"
            ) from None
        except UnknownStream as error:
            raise UnexpectedMessage(f"Line {message.number} of the input is the status of a stream {error}") from None


# --- Statuses of streams --------------------------------------------------------------------------------------------


class _StreamStatus(msgspec.Struct):
    stream_descriptor: StreamDescriptor
    status: str


class _Trace(msgspec.Struct):
    type: str
    stream_status: _StreamStatus | None = None


class _TraceMessage(msgspec.Struct):
    trace: _Trace


class Statuses:
    """The final status of each stream, as the source reports it.

    If the source has succeeded, a platform that sets generation IDs in the catalog sends the status COMPLETE for every
    stream at the end. Other platforms do not send statuses, so every stream counts as complete at the end of the input.
    """

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._expected = {stream.id: stream.generation is not None for stream in streams}
        self._finder = StreamFinder(self._expected)
        self._final: dict[StreamId, str] = {}

    def read_trace(self, line: bytes) -> None:
        """Read a TRACE line. Only the final statuses of streams in the catalog have an effect.

        A line with too many levels of nesting is ignored, because it cannot be a status. Raises AmbiguousStream, and
        msgspec.DecodeError for a TRACE that does not match the protocol.
        """
        try:
            status = decode(line, _TraceMessage).trace.stream_status
        except TooDeep:
            return
        if status is None or status.status not in ("COMPLETE", "INCOMPLETE"):
            return
        descriptor = status.stream_descriptor
        try:
            stream = self._finder.find(descriptor.namespace, descriptor.name)
        except AmbiguousStream:
            raise
        except UnknownStream:
            return
        self._final[stream] = status.status

    def is_complete(self, stream: StreamId) -> bool:
        """Return whether the source has sent all records of the stream. Call this after the end of the input."""
        final = self._final.get(stream)
        return final == "COMPLETE" or (final is None and not self._expected[stream])
