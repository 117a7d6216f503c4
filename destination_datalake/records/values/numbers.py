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

# Adjacent repeats never match the same characters, so that matching takes linear time.
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE]([+-]?)(\d+))?", re.ASCII)
_NOT_FINITE = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_MAX_EXPONENT_DIGITS = 9  # An exponent with more digits is beyond every type as well.
_INT64_DIGITS = 19
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class IntegerRules(ScalarRules):
    """64-bit integers, which are exact or null."""

    native_type = pa.int64()
    text_type = pa.string()
    shape = int
    canonical = r"^-?[0-9]{1,18}$"

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the integer of a number, or of the text of a string."""
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
    """Doubles: the nearest one to the number; null beyond their range."""

    native_type: pa.DataType = pa.float64()
    text_type = pa.string()
    shape = float
    # Exponents that neither overflow nor round to zero.
    canonical = r"^-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?$"

    def verified(self, array: Any) -> Any:
        """Raise SchemaMismatch for numbers that are not finite: NaN is not JSON, but Arrow accepts it."""
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
    """A number that is part of a key. A double that other numbers would be rounded to is reported as changed."""


class ExactFloatRules(FloatRules):
    """The rules for numbers with a unique double: integers, and the shortest decimal text of a double."""

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
            represented = decimal.Decimal(number) if number.is_integer() else decimal.Decimal(repr(number))
            if represented != exact_number(_number_text(raw)):
                changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return number


class DecimalRules(ScalarRules):
    """Decimals: exact, truncated if they have more digits than the type's scale, or null.

    Arrow's JSON parser lets a 128-bit decimal wrap around if the scale adds too many digits. So decimals are parsed
    with 256 bits, which suffice, and `verified` finds values with too many digits.
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
        """Return the decimal of a number, or of the text of a string."""
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
        except decimal.InvalidOperation:  # Rounding up has added a digit.
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        if kept != number:
            changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return kept


def _fraction(scale: int) -> str:
    return rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""


def exact_number(text: str | None) -> decimal.Decimal | None:
    """Return the number of a text, with all its digits; None if it is not a number. `NaN` and `Infinity` are none."""
    match = _NUMBER.fullmatch(text) if text is not None else None
    if match is None:
        return None
    digits, sign, exponent = match.groups()
    if exponent is None:
        return decimal.Decimal(digits)
    power = exponent.lstrip("0") or "0"
    return decimal.Decimal(f"{digits}e{sign}{power if len(power) <= _MAX_EXPONENT_DIGITS else '9' * 9}")


def _number_text(raw: bytes) -> str | None:
    """Return the text of a number, or of a string, without surrounding blanks; None for invalid strings."""
    if raw[:1] != b'"':
        return raw.decode("ascii", "replace")
    text = string_or_none(raw)
    return None if text is None else text.strip(BLANKS)


# --- Far exponents --------------------------------------------------------------------------------------------------
#
# Workaround: finds numbers with far exponents, which must not reach Arrow's decimal parser (apache/arrow#50964).
# The parser reads powers of ten from a table of 77 without a bounds check. As a column may have 38 digits after the
# point, an exponent below -38 may read beyond the table: the number is then wrong, or the process crashes.

_SPAN = 1 << 16
"""Bytes that are searched at a time: few enough for a processor's cache."""

_OVERLAP = 5
"""Additional bytes of each span, for matches that begin at its end."""

_MAX_DIGITS = 512
"""Maximum number of digits that are searched for the beginning of a number. Longer runs count as numbers."""

_E, _ZERO, _PLUS, _MINUS, _POINT, _BACKSLASH, _U = rb"e0+-.\u"
_CASE = 0x20
_POINT_TO_NINE = 12
"""The number of characters from the point to the digit nine. The slash is among them, and is sorted out later."""

_FAR = re.compile(rb'[eE](?:[+-]?[0-9]{3,}|-(?:39|[4-9][0-9]))[\s,\]}"]')
_BEFORE_NUMBERS = b':,[" \t\r\n'
_ESCAPED = re.compile(rb"u00(?:2[bBdDeE]|3[0-9]|[46]5)")


def far_exponent(text: bytes | memoryview) -> bool:
    """Return whether a number in the JSON text, or in a string in it, has an exponent below -38 or above 99.

    A string with escaped characters of a number counts as such a number.
    """
    octets = np.frombuffer(text, np.uint8)
    view = memoryview(text)
    for start in range(0, len(octets), _SPAN):
        first = max(start - 1, 0)
        span = octets[first : start + _SPAN + _OVERLAP]
        if any(_is_far(view, first + at) for at in _exponents(span)):
            return True
        if any(_ESCAPED.match(view, first + at) for at in _escapes(span)):
            return True
    return False


def _exponents(octets: Any) -> Any:
    """Return the positions of each `e` after a digit or point, and before three digits or a sign and two digits."""
    digit_or_point = (octets[:-4] - _POINT) < _POINT_TO_NINE
    at = np.flatnonzero(digit_or_point & ((octets[1:-3] | _CASE) == _E)) + 1
    if not len(at):
        return at
    following = octets[at + 1]
    signed = (following == _PLUS) | (following == _MINUS)
    return at[(signed | _are_digits(following)) & _are_digits(octets[at + 2]) & _are_digits(octets[at + 3])]


def _are_digits(octets: Any) -> Any:
    return (octets - _ZERO) < 10


def _escapes(octets: Any) -> Any:
    """Return the positions of the `u` of each escaped character below 256, which includes a number's characters."""
    at = np.flatnonzero(octets[:-4] == _BACKSLASH) + 1
    if not len(at):
        return at
    at = at[octets[at] == _U]
    return at[(octets[at + 1] == _ZERO) & (octets[at + 2] == _ZERO)]


def _is_far(text: memoryview, at: int) -> bool:
    """Return whether the `e` at this position is part of a number, and not, for example, of a hexadecimal text."""
    if _FAR.match(text, at) is None:
        return False
    before = bytes(text[max(at - _MAX_DIGITS, 0) : at]).rstrip(b"0123456789.+-")
    return not before or before[-1] in _BEFORE_NUMBERS
