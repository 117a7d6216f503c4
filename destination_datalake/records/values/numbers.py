"""Numbers, read with care: integers of 64 bits, doubles, decimals. `plain` has the texts that need none."""

from __future__ import annotations

import decimal
import re
from math import inf, isinf, nan

from destination_datalake.records.changes import (
    FIELD_SIZE_LIMITATION,
    SERIALIZATION_ERROR,
    TRUNCATED,
    Coercer,
    Floats,
    Value,
    ValueChange,
    nulled,
)
from destination_datalake.records.raw_json import NULL, text_of_string
from destination_datalake.schema.types import Decimal

# No two repeats stand side by side that take the same characters: a text of any length is judged in linear time.
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE]([+-]?)(\d+))?", re.ASCII)
_NOT_FINITE = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_FARTHEST_EXPONENT = 9  # digits of an exponent; whatever has more of them is beyond every type as well
_INT64_DIGITS = 19
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def exact_number(text: str | None) -> decimal.Decimal | None:
    """The number that a text is, with all its digits; None if it is none (`NaN` and `Infinity` are none)."""
    found = _NUMBER.fullmatch(text) if text is not None else None
    if found is None:
        return None
    digits, sign, exponent = found.groups()
    if exponent is None:
        return decimal.Decimal(digits)
    power = exponent.lstrip("0") or "0"
    return decimal.Decimal(f"{digits}e{sign}{power if len(power) <= _FARTHEST_EXPONENT else '9' * 9}")


def number_text(raw: bytes) -> str | None:
    """The text of a number, or of a string that may hold one; None for everything else."""
    return text_of_string(raw) if raw[:1] == b'"' else raw.decode("ascii", "replace")


def integer(raw: bytes, changes: list[ValueChange]) -> Value:
    """A coercer for integers of 64 bits, which are exact or null."""
    if len(raw) < _INT64_DIGITS and (raw.isdigit() or (raw[:1] == b"-" and raw[1:].isdigit())):
        return int(raw)
    if raw == NULL:
        return None
    number = exact_number(number_text(raw))
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


def float_coercer(floats: Floats) -> Coercer:
    """A coercer for doubles: the nearest to what was sent, null beyond their range."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        if raw == NULL:
            return None
        if raw[0] in b"-0123456789" and raw != b"-Infinity":
            number = float(raw)
        else:
            text = number_text(raw)
            if text in _NOT_FINITE and floats is Floats.ANY:
                return _NOT_FINITE[text]
            if text is None or not _NUMBER.fullmatch(text):
                return nulled(raw, changes, SERIALIZATION_ERROR)
            number = float(text)
        return nulled(raw, changes, FIELD_SIZE_LIMITATION) if isinf(number) else number

    return coerce


def decimal_coercer(column_type: Decimal) -> Coercer:
    """A coercer for decimals, which are exact, cut where they are finer than the type, or null."""
    whole_digits = column_type.precision - column_type.scale
    unit = decimal.Decimal(1).scaleb(-column_type.scale)
    exact = decimal.Context(
        prec=column_type.precision,
        rounding=decimal.ROUND_HALF_EVEN,
        Emin=decimal.MIN_EMIN,
        Emax=decimal.MAX_EMAX,
        traps=[decimal.InvalidOperation],
    )

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        if raw == NULL:
            return None
        number = exact_number(number_text(raw))
        if number is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        if not number:
            return decimal.Decimal(0)
        if number.adjusted() >= whole_digits:
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        try:
            kept = number.quantize(unit, context=exact)
        except decimal.InvalidOperation:  # rounded up to one digit too many
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        if kept != number:
            changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return kept

    return coerce
