"""JSON that msgspec refuses though nobody looks at what it stumbles over: NaN, lone surrogates, nesting without end.

Python's sources spell NaN and lone surrogates, and any source may nest a free-form value deeper than a recursive
decoder can follow. What is read here is only the frame of a message; what is inside keeps its bytes.
"""

from __future__ import annotations

import json
import re
from typing import TypeVar

import msgspec

_T = TypeVar("_T")

_LEVELS = 16
"""How deep `readable` goes. What a destination reads of a message lies within the first five levels."""

# Possessive, so that a long string takes no memory for ways back.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]')
_OPENING, _CLOSING = frozenset(b"[{"), frozenset(b"]}")
_PARTNER = {ord("["): ord("]"), ord("{"): ord("}")}

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode(text: bytes | msgspec.Raw, type: type[_T]) -> _T:
    """Read what `type` names of a JSON text, whatever the rest of it holds.

    Raises msgspec.ValidationError if it does not have that shape, msgspec.DecodeError if it is no JSON.
    """
    try:
        return msgspec.json.decode(text, type=type)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(readable(bytes(text)), type=type)


def members(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, every value spelled as received. Raises as `decode` does."""
    try:
        return _members.decode(text)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        octets = bytes(text)
        _members.decode(readable(octets))  # Raises unless it is an object.
        return _cut_out(octets)


def object_of(members: dict[str, msgspec.Raw]) -> bytes:
    """The JSON object that has these members."""
    return b"{" + b",".join(b"%b:%b" % (_key(key), bytes(value)) for key, value in members.items()) + b"}"


def readable(text: bytes) -> bytes:
    """A JSON text of the same shape that every decoder takes: strings and keys are kept, numbers are not.

    Lone surrogates become U+FFFD, and what is nested deeper than a message's frame becomes null. Raises
    msgspec.DecodeError.
    """
    try:
        try:
            value = _loaded(text)
        except RecursionError:
            value = _loaded(_frame(text))
    except ValueError:
        raise msgspec.DecodeError("JSON is malformed") from None
    spelled = json.dumps(value, ensure_ascii=False)
    return spelled.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _loaded(text: bytes) -> object:
    # As decoded texts, numbers may have more digits than Python turns into one.
    return json.loads(text.decode("utf-8-sig"), parse_int=_zero, parse_float=_zero, parse_constant=_zero)


def _zero(_: str) -> int:
    return 0


def _frame(text: bytes) -> bytes:
    """The text with null in place of each value deeper than _LEVELS. Raises ValueError if brackets do not match."""
    kept: list[bytes] = []
    closings = bytearray()
    start = 0
    for token in _TOKENS.finditer(text):
        sign = text[token.start()]
        if sign in _OPENING:
            closings.append(_PARTNER[sign])
            if len(closings) == _LEVELS + 1:
                kept += (text[start : token.start()], b"null")
        elif sign in _CLOSING:
            if not closings or closings.pop() != sign:
                raise ValueError("brackets do not match")
            if len(closings) == _LEVELS:
                start = token.end()
    if closings:
        raise ValueError("brackets do not match")
    return b"".join([*kept, text[start:]])


def _cut_out(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of a text that is known to be an object."""
    found: dict[str, msgspec.Raw] = {}
    depth = start = 0
    key: bytes | None = None
    for token in _TOKENS.finditer(text):
        sign = text[token.start()]
        if depth == 1 and key is None and sign == ord('"'):
            key = token.group()
        elif depth == 1 and not start and sign == ord(":"):
            start = token.end()
        elif depth == 1 and key is not None and sign in b",}":
            found[json.loads(key)] = msgspec.Raw(text[start : token.start()].strip())
            key, start = None, 0
        depth += (sign in _OPENING) - (sign in _CLOSING)
    return found


def _key(key: str) -> bytes:
    try:
        return msgspec.json.encode(key)
    except UnicodeEncodeError:
        return json.dumps(key).encode()  # A lone surrogate has no bytes, but an escape.
