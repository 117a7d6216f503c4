"""STATE messages: whom they are for, and how they come back. Their content is a black box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.json_text import decode, members, object_of


class InvalidState(Exception):
    """A STATE message without what the protocol requires of it. The text never holds the state."""


@dataclass(frozen=True, slots=True)
class State:
    """A STATE line as received, and the stream it is for; None when it speaks for all of them."""

    line: bytes
    stream: StreamId | None


class _Descriptor(msgspec.Struct):
    name: str
    namespace: str | None = None


def parse_state(line: bytes) -> State:
    """Read whom a STATE line is for. `stream_state`, `shared_state` and `data` are black boxes and stay so.

    A state without a type is LEGACY, which speaks for all streams, unless it carries a stream or a global member.
    Raises InvalidState.
    """
    try:
        state = members(members(line)["state"])
        kind = decode(state["type"], str | None) if "type" in state else None  # type: ignore[arg-type]
        if kind == "STREAM" or (kind is None and _present(state, "stream")):
            descriptor = decode(members(state["stream"])["stream_descriptor"], _Descriptor)
            return State(line, StreamId(descriptor.namespace or None, descriptor.name))
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
    """The STATE line with `destinationStats` added; every other byte of the state's members is as received.

    `recordCount` is of records that were written, `rejectedRecordCount`, where there are any, of those that were not:
    the platform compares the sum with what the source sent. Both are floats, as the protocol's schema has them.
    Statistics another destination left are replaced.
    """
    more = f',"rejectedRecordCount":{float(rejected)}' if rejected else ""
    statistics = f'{{"recordCount":{float(written)}{more}}}'.encode()
    message = members(line)
    state = members(message["state"])
    state["destinationStats"] = msgspec.Raw(statistics)
    message["state"] = msgspec.Raw(object_of(state))
    return object_of(message)
