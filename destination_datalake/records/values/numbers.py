"""Integers of 64 bits, doubles and decimals. 32-bit columns are read as wide as they can become."""

from __future__ import annotations

import decimal
import re
from math import inf, isfinite, isinf, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.protocol.json_text import NULL, string_or_none
from destination_datalake.records.decoded import FIELD_SIZE_LIMITATION, SERIALIZATION_ERROR, TRUNCATED, ValueChange
from destination_datalake.records.values.rules import BLANKS, Floats, ScalarRules, Value, nulled, require
from destination_datalake.schema.types import Decimal, Float64

# No two repeats stand side by side that take the same characters: a text of any length is judged in linear time.
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE]([+-]?)(\d+))?", re.ASCII)
_NOT_FINITE = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_FARTHEST_EXPONENT = 9  # digits of an exponent; whatever has more of them is beyond every type as well
_INT64_DIGITS = 19
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class IntegerRules(ScalarRules):
    """Integers of 64 bits, which are exact or null."""

    native_type = pa.int64()
    text_type = pa.string()
    shape = int
    canonical = r"^-?[0-9]{1,18}$"

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the integer that a number is, or the text of a string."""
        if len(raw) < _INT64_DIGITS and (raw.isdigit() or (raw[:1] == b"-" and raw[1:].isdigit())):
            return int(raw)
        if raw == NULL:
            return None
        number = exact_number(_number_text(raw))
        if number is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        if not number:
            return 0
        if number.adjusted() >= _INT64_DIGITS:
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        whole = int(number)
        if whole != number:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        return whole if _SMALLEST <= whole <= _LARGEST else nulled(raw, changes, FIELD_SIZE_LIMITATION)


class FloatRules(ScalarRules):
    """Doubles: the nearest to what was sent, null beyond their range."""

    native_type: pa.DataType = pa.float64()
    text_type = pa.string()
    shape = float
    # Exponents that neither overflow nor round to zero.
    canonical = r"^-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?$"

    def verified(self, array: Any) -> Any:
        """Raises SchemaMismatch if a number is not finite: NaN is not JSON, but Arrow takes it."""
        require(pc.all(pc.is_finite(array)).as_py() is not False)
        return array

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the double nearest to a number, or to the text of a string."""
        if raw == NULL:
            return None
        if raw[0] in b"-0123456789" and raw != b"-Infinity":
            number = float(raw)
        else:
            text = _number_text(raw)
            if text in _NOT_FINITE and self.floats is Floats.ANY:
                return _NOT_FINITE[text]
            if text is None or not _NUMBER.fullmatch(text):
                return nulled(raw, changes, SERIALIZATION_ERROR)
            number = float(text)
        return nulled(raw, changes, FIELD_SIZE_LIMITATION) if isinf(number) else number


class ExactFloat(Float64):
    """A number by which rows are told apart: doubles to which different numbers would round are noted as changed."""


class ExactFloatRules(FloatRules):
    """Doubles that stand for one number each: an integer for itself, another for its shortest text."""

    native_type = pa.int64()
    # No two numbers of up to 15 digits have the same double.
    canonical = r"^-?(?:[0-9]{1,15}|[0-9]{1,9}\.[0-9]{1,6})$"

    def verified(self, array: Any) -> Any:
        """Return integers as doubles. Raises ArrowInvalid if one may not be exact: beyond 2^53 either way."""
        return array.cast(self.arrow_type)

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the double nearest to a number, or to the text of a string."""
        number = super().coerce(raw, changes)
        if isinstance(number, float) and isfinite(number):
            own = decimal.Decimal(number) if number.is_integer() else decimal.Decimal(repr(number))
            if own != exact_number(_number_text(raw)):
                changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return number


class DecimalRules(ScalarRules):
    """Decimals, which are exact, cut where they are finer than the type, or null.

    Arrow's JSON parser lets a decimal of 128 bits wrap around when the digits that the scale adds are too many. In 256
    bits all of them have room, and `verified` finds those that are too many.
    """

    text_type = pa.string()
    shape = Any

    def __init__(self, type_: Decimal, floats: Floats) -> None:
        super().__init__(type_, floats)
        self._whole_digits = whole = type_.precision - type_.scale
        self.native_type = pa.decimal256(type_.precision, type_.scale)
        self.canonical = f"^-?{f'[0-9]{{1,{whole}}}' if whole else '0'}{_fraction(type_.scale)}$"
        self._unit = decimal.Decimal(1).scaleb(-type_.scale)
        self._exact = decimal.Context(
            prec=type_.precision,
            rounding=decimal.ROUND_HALF_EVEN,
            Emin=decimal.MIN_EMIN,
            Emax=decimal.MAX_EMAX,
            traps=[decimal.InvalidOperation],
        )

    def verified(self, array: Any) -> Any:
        """Return the decimals in 128 bits. Raises ArrowInvalid if one has too many digits."""
        array.validate(full=True)
        return array.cast(self.arrow_type)

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the decimal that a number is, or the text of a string."""
        if raw == NULL:
            return None
        number = exact_number(_number_text(raw))
        if number is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        if not number:
            return decimal.Decimal(0)
        if number.adjusted() >= self._whole_digits:
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        try:
            kept = number.quantize(self._unit, context=self._exact)
        except decimal.InvalidOperation:  # rounded up to one digit too many
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        if kept != number:
            changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return kept


def _fraction(scale: int) -> str:
    return rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""


def exact_number(text: str | None) -> decimal.Decimal | None:
    """Return the number that a text is, with all its digits; None if it is not one, as `NaN` and `Infinity` are not."""
    found = _NUMBER.fullmatch(text) if text is not None else None
    if found is None:
        return None
    digits, sign, exponent = found.groups()
    if exponent is None:
        return decimal.Decimal(digits)
    power = exponent.lstrip("0") or "0"
    return decimal.Decimal(f"{digits}e{sign}{power if len(power) <= _FARTHEST_EXPONENT else '9' * 9}")


def _number_text(raw: bytes) -> str | None:
    """Return the text of a number, or of a string that may hold one, without blanks around; None otherwise."""
    if raw[:1] != b'"':
        return raw.decode("ascii", "replace")
    text = string_or_none(raw)
    return None if text is None else text.strip(BLANKS)


# --- Far exponents --------------------------------------------------------------------------------------------------
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
