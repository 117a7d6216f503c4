"""STATE messages: which streams they cover, and how they are emitted. Their content is opaque."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from destination_datalake.protocol.catalog import StreamDescriptor, StreamId
from destination_datalake.protocol.json_text import decode, members, object_of


class InvalidState(Exception):
    """A STATE message without what the protocol requires. The text never contains the state."""


@dataclass(frozen=True, slots=True)
class State:
    """A STATE line as received, and the stream that it covers; None if it covers all streams."""

    line: bytes
    stream: StreamId | None


def parse_state(line: bytes) -> State:
    """Read which stream a STATE line covers. `stream_state`, `shared_state` and `data` are not decoded.

    A state without a type is LEGACY, which covers all streams, unless it has a `stream` member. Raises InvalidState,
    also if the line is not UTF-8: what is written to stdout must be JSON.
    """
    try:
        str(line, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidState(f"a STATE that is not UTF-8 (byte {error.start + 1})") from None
    try:
        state = members(members(line)["state"])
        kind = decode(state["type"], str | None) if "type" in state else None  # type: ignore[arg-type]
        if kind == "STREAM" or (kind is None and _present(state, "stream")):
            return State(line, decode(members(state["stream"])["stream_descriptor"], StreamDescriptor).id)
    except msgspec.DecodeError as error:
        raise InvalidState(f"a STATE that cannot be read: {error}") from None
    except KeyError as error:
        raise InvalidState(f"a STATE without the member {error}") from None
    if kind not in (None, "GLOBAL", "LEGACY"):
        raise InvalidState(f"a STATE of the unknown type {kind[:50]!r}")
    return State(line, None)


def _present(state: Mapping[str, msgspec.Raw], key: str) -> bool:
    return key in state and bytes(state[key]) != b"null"


def with_statistics(line: bytes, written: int, rejected: int = 0) -> bytes:
    """Return the STATE line with `destinationStats` added; the other members of the state keep every byte.

    `recordCount` counts records that were written, `rejectedRecordCount` (if there are any) those that were not: the
    platform compares the sum with what the source sent. Both are floats, as in the protocol's schema. Existing
    statistics are replaced.
    """
    more = f',"rejectedRecordCount":{float(rejected)}' if rejected else ""
    statistics = f'{{"recordCount":{float(written)}{more}}}'.encode()
    message = members(line)
    state = members(message["state"])
    state["destinationStats"] = msgspec.Raw(statistics)
    message["state"] = msgspec.Raw(object_of(state))
    return object_of(message)
