"""JSON text taken apart without touching the values, also where it is JSON to some readers only."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Raw

NULL = b"null"
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
_TEXT = msgspec.json.Decoder(str)


def members_of(raw: bytes) -> dict[str, bytes] | None:
    """Key to JSON text of an object, the last of equal keys; None if it is not an object (or not JSON)."""
    try:
        return {key: bytes(value) for key, value in _OBJECT.decode(raw).items()}
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        members = _lenient(raw, "{}")
        return None if members is None else dict(members)
    except RecursionError:
        return None


def elements_of(raw: bytes) -> list[bytes] | None:
    """The JSON texts of an array's elements; None if it is not an array (or not JSON)."""
    try:
        return [bytes(value) for value in _ARRAY.decode(raw)]
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        elements = _lenient(raw, "[]")
        return None if elements is None else [element for _, element in elements]
    except RecursionError:
        return None


def _lenient(raw: bytes, brackets: str) -> list[tuple[str, bytes]] | None:
    """The members of an object (`{}`) or the elements of an array (`[]`), in JSON that msgspec refuses.

    That is JSON with lone surrogates, with bytes in a key that are not UTF-8, or with the NaN and Infinity that Python
    writes. None if it is not such JSON.
    """
    try:
        return _scan(raw.decode("utf-8", "surrogateescape"), brackets)
    except (ValueError, StopIteration, RecursionError):
        return None


def _scan(text: str, brackets: str) -> list[tuple[str, bytes]]:
    """Raises ValueError or StopIteration, as Python's own scanner does, where the text is not such JSON."""
    opening, closing = brackets[0], brackets[1]
    found: list[tuple[str, bytes]] = []
    at = _token(text, _past_space(text, 0), opening)
    if text[at : at + 1] == closing:
        at += 1
    else:
        while True:
            key = ""
            if opening == "{":
                key, at = _value_at(text, at)
                if not isinstance(key, str):
                    raise ValueError("a key is not a string")
                at = _token(text, _past_space(text, at), ":")
            start = at
            _, at = _value_at(text, at)
            found.append((key, text[start:at].encode("utf-8", "surrogateescape")))
            at = _past_space(text, at)
            if text[at : at + 1] == closing:
                at += 1
                break
            at = _token(text, at, ",")
    if _past_space(text, at) != len(text):
        raise ValueError("there is something after the end")
    return found


def _token(text: str, at: int, token: str) -> int:
    """The place of what follows the token and white space."""
    if text[at : at + 1] != token:
        raise ValueError(f"{token} is missing")
    return _past_space(text, at + 1)


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


_SPACE = " \t\n\r"
# Only where a value ends is of interest, so numbers of any length cost nothing.
_value_at: Callable[[str, int], tuple[Any, int]] = cast(Any, json.JSONDecoder(parse_int=len, parse_float=len)).scan_once


def text_of_string(raw: bytes) -> str | None:
    """The content of a JSON string; None if it is none, or one that UTF-8 cannot hold."""
    try:
        return _TEXT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
