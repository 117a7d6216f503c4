"""Arrow's JSON parser: in C++, against an explicit schema. It refuses all of a block for one value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from destination_datalake.records.values.rules import ReadStrategy, SchemaMismatch, TypeRules, require

REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What Arrow and msgspec raise where a block is not as they were asked to read it."""


def parse_member(block: bytes | memoryview, member: pa.Field[Any]) -> Any:
    """Return one member of each of the block's objects, as one array. Raises one of `REFUSALS`, or SchemaMismatch."""
    require(not _holds_decimals(member.type) or not far_exponent(block))
    options = pj.ParseOptions(explicit_schema=pa.schema([member]), unexpected_field_behavior="ignore")
    source: Any = pa.BufferReader(pa.py_buffer(block))
    # One block: what Arrow gives back is one chunk.
    read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return pj.read_json(source, read, options).column(member.name).chunk(0)


def _holds_decimals(type_: pa.DataType) -> bool:
    """Whether Arrow parses decimals itself; those that it reads as strings are judged by their canonical pattern."""
    children = (type_.field(i).type for i in range(type_.num_fields))
    return pa.types.is_decimal(type_) or any(map(_holds_decimals, children))


def parse_texts(texts: Sequence[str], rules: TypeRules) -> Any:
    """Return JSON texts as `rules.arrow_type`. Raises one of `REFUSALS`, or SchemaMismatch, if one is irregular."""
    if not texts:
        return pa.array([], rules.arrow_type)
    native = rules.read_type(ReadStrategy.NATIVE)
    if native is None:
        raise SchemaMismatch
    block = ('{"v":' + '}\n{"v":'.join(texts) + "}\n").encode()
    array = parse_member(block, pa.field("v", native))
    require(len(array) == len(texts))
    return rules.conform(array)


# --- Far exponents ----------------------------------------------------------------------------------------------------
#
# Workaround: finds numbers with far exponents, which Arrow's decimal parser must not be given (apache/arrow#50964).
# The parser takes powers of ten from a table of 77 without a bounds check. With the 38 digits that a column may have
# behind the point, an exponent below -38 may read beyond the table: the number comes out wrong, or the process crashes.

_SPAN = 1 << 16
"""Bytes that are searched at a time: few enough to stay in a processor's cache."""

_BEYOND = 5
"""More bytes of each span, for what begins at its end."""

_LONGEST = 512
"""Longer runs of digits are not searched to their beginning: they count as numbers."""

_E, _ZERO, _PLUS, _MINUS, _POINT, _BACKSLASH, _U = rb"e0+-.\u"
_CASE = 0x20
_POINT_TO_NINE = 12
"""The characters from the point to the digit nine. One of them, the slash, is neither, and costs a closer look."""

_FAR = re.compile(rb'[eE](?:[+-]?[0-9]{3,}|-(?:39|[4-9][0-9]))[\s,\]}"]')
_BEFORE_NUMBERS = b':,[" \t\r\n'
_ESCAPED = re.compile(rb"u00(?:2[bBdDeE]|3[0-9]|[46]5)")


def far_exponent(text: bytes | memoryview) -> bool:
    """Whether a number in the JSON text, or a string that reads like one, has an exponent below -38 or above 99.

    A string in which a number's characters are escaped counts as such.
    """
    octets = np.frombuffer(text, np.uint8)
    view = memoryview(text)
    for start in range(0, len(octets), _SPAN):
        first = max(start - 1, 0)
        span = octets[first : start + _SPAN + _BEYOND]
        if any(_is_far(view, first + at) for at in _exponents(span)):
            return True
        if any(_ESCAPED.match(view, first + at) for at in _escapes(span)):
            return True
    return False


def _exponents(octets: Any) -> Any:
    """Return the positions of every `e` with a digit or point before it, and three digits or sign and two behind it."""
    digit_or_point = (octets[:-4] - _POINT) < _POINT_TO_NINE
    found = np.flatnonzero(digit_or_point & ((octets[1:-3] | _CASE) == _E)) + 1
    if not len(found):
        return found
    behind = octets[found + 1]
    signed = (behind == _PLUS) | (behind == _MINUS)
    return found[(signed | _are_digits(behind)) & _are_digits(octets[found + 2]) & _are_digits(octets[found + 3])]


def _are_digits(octets: Any) -> Any:
    return (octets - _ZERO) < 10


def _escapes(octets: Any) -> Any:
    """Return the positions of the `u` of every escaped character below 256, as those of a number are."""
    found = np.flatnonzero(octets[:-4] == _BACKSLASH) + 1
    if not len(found):
        return found
    found = found[octets[found] == _U]
    return found[(octets[found + 1] == _ZERO) & (octets[found + 2] == _ZERO)]


def _is_far(text: memoryview, at: int) -> bool:
    """Whether the `e` at this position is that of a number, not of a hexadecimal text, say."""
    if _FAR.match(text, at) is None:
        return False
    before = bytes(text[max(at - _LONGEST, 0) : at]).rstrip(b"0123456789.+-")
    return not before or before[-1] in _BEFORE_NUMBERS
