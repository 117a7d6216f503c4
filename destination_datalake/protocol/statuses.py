"""Stream statuses: what the source said about the end of each stream (protocol: AirbyteStreamStatusTraceMessage)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from destination_datalake.protocol.catalog import AmbiguousStream, Stream, StreamFinder, StreamId, UnknownStream
from destination_datalake.protocol.json_text import decode


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
        self._finder = StreamFinder(self._expected)
        self._final: dict[StreamId, str] = {}

    def read_trace(self, line: bytes) -> None:
        """Read a TRACE line; what does not say how one of our streams ended is of no concern to a destination.

        Raises msgspec.DecodeError for a TRACE that does not have the protocol's shape, AmbiguousStream for one that
        several streams could be meant by.
        """
        status = decode(line, _TraceMessage).trace.stream_status
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
        """Whether the stream's input is all there, judged at the end of input."""
        final = self._final.get(stream)
        return final == "COMPLETE" or (final is None and not self._expected[stream])
