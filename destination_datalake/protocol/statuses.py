"""Stream statuses: what the source said about the end of each stream (protocol: AirbyteStreamStatusTraceMessage)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from destination_datalake.protocol.catalog import Stream, StreamId


class _Descriptor(msgspec.Struct):
    name: str
    namespace: str | None = None


class _StreamStatus(msgspec.Struct):
    stream_descriptor: _Descriptor
    status: str


class _Trace(msgspec.Struct):
    type: str
    stream_status: _StreamStatus | None = None


class _TraceMessage(msgspec.Struct):
    trace: _Trace


class Statuses:
    """Which streams the source finished.

    The platform sends COMPLETE for every stream at the very end, and only if the source succeeded and the catalog
    carries generation ids. Without those ids nobody sends statuses, so a clean end of input counts as complete.
    """

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._expected = {stream.id: stream.generation is not None for stream in streams}
        self._final: dict[StreamId, str] = {}

    def note(self, line: bytes) -> None:
        """Read a TRACE line; what is not a stream's status is of no concern to a destination.

        Raises msgspec.ValidationError for a TRACE that does not have the protocol's shape.
        """
        status = msgspec.json.decode(line, type=_TraceMessage).trace.stream_status
        if status is None or status.status not in ("COMPLETE", "INCOMPLETE"):
            return
        stream = self._find(status.stream_descriptor)
        if stream is not None:
            self._final[stream] = status.status

    def complete(self, stream: StreamId) -> bool:
        """Whether the stream's input is all there, judged at the end of input."""
        final = self._final.get(stream)
        return final == "COMPLETE" or (final is None and not self._expected[stream])

    def _find(self, descriptor: _Descriptor) -> StreamId | None:
        return find_stream(self._expected, descriptor.namespace, descriptor.name)


def find_stream(streams: Iterable[StreamId], namespace: str | None, name: str) -> StreamId | None:
    """The stream a message means: the exact pair, or, where the message has no namespace, the only one of that name."""
    exact = StreamId(namespace or None, name)
    named = [stream for stream in streams if stream.name == name]
    if exact in named:
        return exact
    return named[0] if not namespace and len(named) == 1 else None
