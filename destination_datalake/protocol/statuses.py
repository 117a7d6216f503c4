"""Stream statuses: whether the source completed each stream (protocol: AirbyteStreamStatusTraceMessage)."""

from __future__ import annotations

from collections.abc import Iterable

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


class _StreamStatus(msgspec.Struct):
    stream_descriptor: StreamDescriptor
    status: str


class _Trace(msgspec.Struct):
    type: str
    stream_status: _StreamStatus | None = None


class _TraceMessage(msgspec.Struct):
    trace: _Trace


class Statuses:
    """The final status of each stream.

    A platform that sets generation ids in the catalog sends COMPLETE for every stream at the end, if the source has
    succeeded. Other platforms send no statuses, so there the end of the input counts as complete.
    """

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._expected = {stream.id: stream.generation is not None for stream in streams}
        self._finder = StreamFinder(self._expected)
        self._final: dict[StreamId, str] = {}

    def read_trace(self, line: bytes) -> None:
        """Read a TRACE line. Those that are not the final status of a stream of the catalog are ignored,
        and so is one that is nested too deeply to be read: no status is.

        Raises msgspec.DecodeError for a TRACE that does not have the protocol's shape, and AmbiguousStream.
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
        """Whether all of the stream's input was sent; call it at the end of the input."""
        final = self._final.get(stream)
        return final == "COMPLETE" or (final is None and not self._expected[stream])
