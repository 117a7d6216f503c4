"""Split lines and JSON texts into values without changing their bytes, even if decoders reject the text.

Sources written in Python send NaN, Infinity and lone surrogates. Some sources send bytes that are not UTF-8. msgspec
decodes nearly all texts. If msgspec rejects a text, this module scans the text again with Python's scanner.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Raw

_T = TypeVar("_T")

NULL = b"null"

_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
_STRING = msgspec.json.Decoder(str)
_REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# --- Lines ------------------------------------------------------------------------------------------------------------

Octets = np.ndarray[Any, np.dtype[np.uint8]]
Positions = np.ndarray[Any, np.dtype[np.intp]]

_NEWLINE = 10
_PIECE = 256 * 1024


def line_bounds(octets: Octets) -> tuple[Positions, Positions]:
    """Return the positions of all line starts and all newlines. The text must be empty or end with a newline.

    Searches the text in pieces that fit in the processor's cache, which halves the time.
    """
    # An empty text needs one piece, because `concatenate` rejects an empty list.
    pieces = range(0, len(octets), _PIECE) or (0,)
    ends = np.concatenate([np.flatnonzero(octets[start : start + _PIECE] == _NEWLINE) + start for start in pieces])
    starts = np.empty_like(ends)
    starts[:1] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    return starts, ends


# --- Messages: UTF-8. Errors are raised ------------------------------------------------------------------------------


class TooDeep(msgspec.DecodeError):
    """Raised if a JSON text is nested more deeply than decoders support (about a thousand levels)."""

    def __init__(self) -> None:
        super().__init__("JSON is nested too deeply")


def decode(text: bytes | Raw, type: type[_T]) -> _T:
    """Decode those members of a JSON text that `type` declares. Ignore all other members, whatever they contain.

    Raises msgspec.ValidationError if the text does not match `type`, TooDeep if the text is nested too deeply, and
    msgspec.DecodeError if the text is not JSON.
    """
    try:
        return msgspec.json.decode(text, type=type)  # noqa: TID251 (only the main thread decodes messages)
    except msgspec.ValidationError:
        # Valid JSON of another shape. Without this clause, the next one would catch the error: it is a DecodeError.
        raise
    except _REFUSALS:
        with _depth_limited():
            return msgspec.json.decode(readable(bytes(text)), type=type)  # noqa: TID251


def members(text: bytes | Raw) -> dict[str, Raw]:
    """Return the members of a JSON object, with unchanged JSON texts as values. Raises the same errors as `decode`."""
    try:
        return _OBJECT.decode(text)
    except msgspec.ValidationError:
        raise
    except _REFUSALS:
        octets = bytes(text)
        with _depth_limited():
            _OBJECT.decode(readable(octets))  # Raises an error unless the text is an object.
            return {key: Raw(value) for key, value in _scan(octets.decode("utf-8-sig"), "{}")}


@contextmanager
def _depth_limited() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise TooDeep from None


def object_of(members: dict[str, Raw]) -> bytes:
    """Return the text of a JSON object with these members."""
    return b"{" + b",".join(b"%b:%b" % (_key(key), bytes(value)) for key, value in members.items()) + b"}"


def _key(key: str) -> bytes:
    try:
        return msgspec.json.encode(key)
    except UnicodeEncodeError:
        return json.dumps(key).encode()  # UTF-8 cannot encode a lone surrogate, so escape it.


def readable(text: bytes) -> bytes:
    """Return a JSON text that has the same structure as `text`, and that every decoder accepts.

    Replaces all numbers by 0, and lone surrogates by U+FFFD. Raises TooDeep if the text is nested too deeply, and
    msgspec.DecodeError if it is not JSON.
    """
    try:
        with _depth_limited():
            # Do not convert numbers, because a number may have more digits than Python can convert.
            value = json.loads(text.decode("utf-8-sig"), parse_int=_zero, parse_float=_zero, parse_constant=_zero)
            spelled = json.dumps(value, ensure_ascii=False)
    except TooDeep:
        raise
    except ValueError:
        raise msgspec.DecodeError("JSON is malformed") from None
    # In UTF-16, a lone surrogate becomes a single U+FFFD. In UTF-8, each of its three bytes would become one.
    return spelled.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _zero(_: str) -> int:
    return 0


# --- Values of records: any bytes. None where a text is not JSON, or nested too deeply --------------------------------


def members_or_none(raw: bytes) -> dict[str, bytes] | None:
    """Return a dict that maps each key of an object to the JSON text of its value.

    Return None if `raw` is not an object. If several members have the same key, the last one wins.
    """
    try:
        return {key: bytes(value) for key, value in _OBJECT.decode(raw).items()}
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        items = _scan_or_none(raw, "{}")
        return None if items is None else dict(items)
    except RecursionError:
        return None


def elements_or_none(raw: bytes) -> list[bytes] | None:
    """Return the JSON text of each element of an array, or None if `raw` is not an array."""
    try:
        return [bytes(value) for value in _ARRAY.decode(raw)]
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        items = _scan_or_none(raw, "[]")
        return None if items is None else [element for _, element in items]
    except RecursionError:
        return None


def string_or_none(raw: bytes) -> str | None:
    """Return the content of a JSON string, or None if `raw` is not a string or its content has no UTF-8 encoding."""
    try:
        return _STRING.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _scan_or_none(raw: bytes, brackets: str) -> list[tuple[str, bytes]] | None:
    try:
        return _scan(raw.decode("utf-8", "surrogateescape"), brackets)
    except (ValueError, StopIteration, RecursionError):
        return None


# --- The scanner ----------------------------------------------------------------------------------------------------


def _scan(text: str, brackets: str) -> list[tuple[str, bytes]]:
    """Return the members of an object, as keys and JSON texts, or the elements of an array with empty keys.

    `brackets` is `{}` for an object, or `[]` for an array. If `text` is anything else, raises ValueError, StopIteration
    or RecursionError, like Python's scanner.
    """
    opening, closing = brackets[0], brackets[1]
    items: list[tuple[str, bytes]] = []
    at = _past_token(text, _past_space(text, 0), opening)
    if text[at : at + 1] == closing:
        at += 1
    else:
        while True:
            key = ""
            if opening == "{":
                key, at = _value_at(text, at)
                if not isinstance(key, str):
                    raise ValueError("a key is not a string")
                at = _past_token(text, _past_space(text, at), ":")
            start = at
            at = _value_at(text, at)[1]
            items.append((key, text[start:at].encode("utf-8", "surrogateescape")))
            at = _past_space(text, at)
            if text[at : at + 1] == closing:
                at += 1
                break
            at = _past_token(text, at, ",")
    if _past_space(text, at) != len(text):
        raise ValueError("text follows the value")
    return items


def _past_token(text: str, at: int, token: str) -> int:
    """Return the position after the token and any white space. Raises ValueError if the token is missing."""
    if text[at : at + 1] != token:
        raise ValueError(f"{token} is missing")
    return _past_space(text, at + 1)


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


_SPACE = " \t\n\r"
# Callers need only keys and the positions after values, so do not convert numbers.
_value_at: Callable[[str, int], tuple[Any, int]] = cast(Any, json.JSONDecoder(parse_int=len, parse_float=len)).scan_once
