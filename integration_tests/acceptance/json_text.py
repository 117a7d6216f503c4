"""JSON kept as the text it is: objects and arrays are taken apart without reading the values inside."""

import json

_DECODER = json.JSONDecoder(strict=False)
_WHITE = " \t\r\n"


def members(text: str) -> dict[str, str]:
    """Return the members of an object, each value as its own text; of a name given twice the last one counts."""
    values = {}
    at = _skip(text, 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        values[name] = text[start:end]
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return values


def elements(text: str) -> list[str]:
    """Return the elements of an array, each as its own text."""
    values = []
    at = _skip(text, 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        values.append(text[at:end])
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return values


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITE:
        at += 1
    return at
