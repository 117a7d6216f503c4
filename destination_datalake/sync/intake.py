"""Parse the input of a sync: split it into states and records, and group the records between two states by stream."""

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

_MAX_UNKNOWN_TYPES = 20
"""Maximum number of unknown message types that the connector remembers and reports."""

_MAX_SHOWN_LENGTH = 50
"""Maximum number of characters of an unknown message type that the connector remembers and reports."""


class UnexpectedMessage(Exception):
    """Raised for a message that does not fit this sync, such as a record of an unknown stream.

    The text of the exception does not quote the message.
    """


@dataclass(slots=True)
class StreamRecords:
    """Record lines of one stream.

    `pieces` contains the bytes of the lines, and `count` is the number of lines. A piece may be a view of the chunk of
    input that contains the lines. Such a piece is only valid as long as the chunk.
    """

    pieces: list[bytes | memoryview] = field(default_factory=list)
    count: int = 0

    def add(self, records: Records) -> None:
        """Append the lines of `records`. In the input, these lines come after all lines that were added earlier."""
        self.pieces.append(records.lines)
        self.count += records.count


_REPORT_ERROR = "Report this error to the maintainers of the source."


class Intake:
    """Parses the input of one sync, chunk by chunk. Calls `warn` with a text once for each unknown message type.

    The number of warnings is limited.
    """

    def __init__(self, streams: Iterable[StreamId], statuses: Statuses, warn: Callable[[str], None]) -> None:
        self._finder = StreamFinder(streams)
        self._statuses = statuses
        self._warn = warn
        self._reader = MessageReader()
        self._streams_by_name: dict[tuple[str | None, str], StreamId] = {}
        self._unknown_types: set[str] = set()

    def steps(self, chunk: bytes | memoryview) -> Iterator[Mapping[StreamId, StreamRecords] | State]:
        """Yield the records and states of a chunk, in order.

        Combines all records between two states in one mapping, from each stream to its records. At the first invalid
        line, yields the messages before this line, and then raises MalformedLine or UnexpectedMessage.
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
        # A chunk can contain many short runs. Sources use few spellings of a name, so this dict stays small.
        known = self._streams_by_name.get((records.namespace, records.stream))
        if known is None:
            known = self._find("RECORD", records.first_line, records.namespace, records.stream)
            self._streams_by_name[(records.namespace, records.stream)] = known
        return known

    def _find(self, message_type: str, line: int, namespace: str | None, name: str) -> StreamId:
        try:
            return self._finder.find(namespace, name)
        except UnknownStream as error:
            stream = StreamId(namespace or None, name)
            raise UnexpectedMessage(
                f"Line {line} of the input is a {message_type} of stream {stream}. {error}"
            ) from None

    def _state_in(self, message: Message) -> State | None:
        """Return the state that a message contains, or None if the message is not a STATE.

        The state names its stream as the catalog does, even if the message omits the namespace.
        """
        if message.type == "TRACE":
            self._read_trace(message)
        elif message.type == "STATE":
            try:
                state = parse_state(message.line)
            except InvalidState as error:
                raise UnexpectedMessage(f"Line {message.number} of the input is {error}. {_REPORT_ERROR}") from None
            if state.stream is None:
                return state
            return replace(state, stream=self._find("STATE", message.number, *state.stream))
        elif message.type not in _IGNORED:
            self._warn_of_type(message.type[:_MAX_SHOWN_LENGTH])
        return None

    def _warn_of_type(self, unknown_type: str) -> None:
        """Warn once for each unknown message type. After _MAX_UNKNOWN_TYPES types, no longer warn."""
        if unknown_type in self._unknown_types or len(self._unknown_types) == _MAX_UNKNOWN_TYPES:
            return
        self._unknown_types.add(unknown_type)
        last = len(self._unknown_types) == _MAX_UNKNOWN_TYPES
        further = " It does not report further unknown types." if last else ""
        self._warn(f"The connector ignores messages of the unknown type {unknown_type!r}.{further}")

    def _read_trace(self, message: Message) -> None:
        try:
            self._statuses.read_trace(message.line)
        except msgspec.DecodeError as error:
            raise UnexpectedMessage(
                f"Line {message.number} of the input is an invalid TRACE: {error}. {_REPORT_ERROR}"
            ) from None
        except UnknownStream as error:
            raise UnexpectedMessage(
                f"Line {message.number} of the input is a stream status or error. {error}"
            ) from None


# --- Statuses of streams --------------------------------------------------------------------------------------------


class _StreamStatus(msgspec.Struct):
    stream_descriptor: StreamDescriptor
    status: str


class _Error(msgspec.Struct):
    stream_descriptor: StreamDescriptor | None = None


class _Trace(msgspec.Struct):
    type: str
    stream_status: _StreamStatus | None = None
    error: _Error | None = None


class _TraceMessage(msgspec.Struct):
    trace: _Trace


class Statuses:
    """The final status of each stream.

    If the platform sets generation IDs in the catalog, a successful source reports COMPLETE for every stream. On other
    platforms, the source reports no status, and each stream counts as complete at the end of the input, unless the
    source reports an error.
    """

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._expected = {stream.id: stream.generation is not None for stream in streams}
        self._finder = StreamFinder(self._expected)
        self._final: dict[StreamId, str] = {}

    def read_trace(self, line: bytes) -> None:
        """Read a TRACE line. Only an error and the statuses COMPLETE and INCOMPLETE have an effect.

        An error of a stream counts as the status INCOMPLETE. An error without a stream counts as the status INCOMPLETE
        of all streams that have no final status yet.

        Ignores streams that are not in the catalog, and lines that are nested too deeply. Raises AmbiguousStream if the
        line matches several streams, and msgspec.DecodeError if the line violates the protocol.
        """
        try:
            trace = decode(line, _TraceMessage).trace
        except TooDeep:
            return
        if trace.type == "ERROR":
            descriptor, final = None if trace.error is None else trace.error.stream_descriptor, "INCOMPLETE"
        elif trace.stream_status is not None and trace.stream_status.status in ("COMPLETE", "INCOMPLETE"):
            descriptor, final = trace.stream_status.stream_descriptor, trace.stream_status.status
        else:
            return
        if descriptor is None:
            self._final = dict.fromkeys(self._expected, final) | self._final
            return
        try:
            stream = self._finder.find(descriptor.namespace, descriptor.name)
        except AmbiguousStream:
            # A subclass of UnknownStream. If the status were ignored, the stream would count as incomplete, and the
            # user would not learn why.
            raise
        except UnknownStream:
            return
        self._final[stream] = final

    def is_complete(self, stream: StreamId) -> bool:
        """Return whether the source has sent all records of the stream. Call this method after the end of the input."""
        final = self._final.get(stream)
        return final == "COMPLETE" or (final is None and not self._expected[stream])
