"""The coercers for integers, floats and decimals. A coercer converts a JSON value to a column type (see `Coercer`).

The results have 64 bits even for 32-bit columns, because a value that needs 64 bits widens the column.
"""

from __future__ import annotations

import decimal
import re
from math import inf, isfinite, isinf, nan

from destination_datalake.protocol.json_text import NULL, string_or_none
from destination_datalake.records.decoded import FIELD_SIZE_LIMITATION, SERIALIZATION_ERROR, TRUNCATED, ValueChange
from destination_datalake.records.values.rules import BLANKS, Coercer, Floats, Value, nulled
from destination_datalake.schema.types import Decimal, Float64

# Adjacent repetitions never match the same characters, so the time for matching is linear in the length of the text.
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE]([+-]?)(\d+))?", re.ASCII)
_NOT_FINITE = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_MAX_EXPONENT_DIGITS = 9  # An exponent with more digits is out of range for every type.
_INT64_DIGITS = 19
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def coerce_integer(raw: bytes, changes: list[ValueChange]) -> Value:
    """Convert a JSON number, or a number in a JSON string, to a 64-bit integer.

    For a number with a fraction or out of range, and for any other value, returns null.
    """
    # Fewer than 19 characters always fit in 64 bits. Nearly all integers take this path.
    if len(raw) < _INT64_DIGITS and (raw.isdigit() or (raw[:1] == b"-" and raw[1:].isdigit())):
        return int(raw)
    if raw == NULL:
        return None
    number = exact_number(_number_text(raw))
    if number is None:
        return nulled(raw, changes, SERIALIZATION_ERROR)
    if not number:
        return 0
    # Before `int`, which would write out all the zeros of a huge exponent.
    if number.adjusted() >= _INT64_DIGITS:
        return nulled(raw, changes, FIELD_SIZE_LIMITATION)
    whole = int(number)
    if whole != number:
        return nulled(raw, changes, SERIALIZATION_ERROR)
    return whole if _SMALLEST <= whole <= _LARGEST else nulled(raw, changes, FIELD_SIZE_LIMITATION)


def coerce_float(floats: Floats, raw: bytes, changes: list[ValueChange]) -> Value:
    """Convert a JSON number, or a number in a JSON string, to the nearest double.

    Also converts NaN and infinities if `floats` allows them. For a number out of range, and for any other value,
    returns null.
    """
    if raw == NULL:
        return None
    if raw[0] in b"-0123456789" and raw != b"-Infinity":
        number = float(raw)
    else:
        text = _number_text(raw)
        if text in _NOT_FINITE and floats is Floats.ANY:
            return _NOT_FINITE[text]
        if text is None or not _NUMBER.fullmatch(text):
            return nulled(raw, changes, SERIALIZATION_ERROR)
        number = float(text)
    return nulled(raw, changes, FIELD_SIZE_LIMITATION) if isinf(number) else number


class ExactFloat(Float64):
    """The type of a float column that is part of a primary key.

    If a double does not identify the received number, the coercer for this type reports the conversion as a change.
    """


def coerce_exact_float(floats: Floats, raw: bytes, changes: list[ValueChange]) -> Value:
    """Convert a number in a key to the nearest double. If the double does not identify the number, report a truncation.

    If the double is an integer, it identifies only the number with exactly the same value. Any other double identifies
    the number that its shortest decimal representation denotes.
    """
    number = coerce_float(floats, raw, changes)
    if isinstance(number, float) and isfinite(number):
        represented = decimal.Decimal(number) if number.is_integer() else decimal.Decimal(repr(number))
        if represented != exact_number(_number_text(raw)):
            changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
    return number


def decimal_coercer(type_: Decimal) -> Coercer:
    """Return the coercer that converts a JSON number, or a number in a JSON string, to a decimal.

    If a number has more decimal places than the type's scale, the coercer rounds the number (half to even), and reports
    the value as truncated. For a number with too many digits before the point, and for any other value, the coercer
    returns null.
    """
    whole_digits = type_.precision - type_.scale
    unit = decimal.Decimal(1).scaleb(-type_.scale)
    # The default context has 28 digits, fewer than a column may have.
    exact = decimal.Context(
        prec=type_.precision,
        rounding=decimal.ROUND_HALF_EVEN,
        Emin=decimal.MIN_EMIN,
        Emax=decimal.MAX_EMAX,
        traps=[decimal.InvalidOperation],
    )

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        if raw == NULL:
            return None
        number = exact_number(_number_text(raw))
        if number is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        if not number:
            return decimal.Decimal(0)
        if number.adjusted() >= whole_digits:
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        try:
            kept = number.quantize(unit, context=exact)
        except decimal.InvalidOperation:  # Rounding up has added an integer digit.
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        if kept != number:
            changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return kept

    return coerce


def exact_number(text: str | None) -> decimal.Decimal | None:
    """Return the number that a text denotes, with all digits, or None if the text is not a finite number."""
    match = _NUMBER.fullmatch(text) if text is not None else None
    if match is None:
        return None
    digits, sign, exponent = match.groups()
    if exponent is None:
        return decimal.Decimal(digits)
    power = exponent.lstrip("0") or "0"
    return decimal.Decimal(f"{digits}e{sign}{power if len(power) <= _MAX_EXPONENT_DIGITS else '9' * 9}")


def _number_text(raw: bytes) -> str | None:
    """Return the text of a JSON number, or the content of a JSON string, without surrounding blanks.

    Returns None for an invalid string.
    """
    if raw[:1] != b'"':
        return raw.decode("ascii", "replace")
    text = string_or_none(raw)
    return None if text is None else text.strip(BLANKS)
