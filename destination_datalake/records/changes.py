"""What a value comes out as, and what is noted of one that could not be kept as it was sent."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import Enum

Value = None | bool | int | float | decimal.Decimal | str | dict[str, "Value"] | list["Value"]

NULLED = "NULLED"
TRUNCATED = "TRUNCATED"
SERIALIZATION_ERROR = "DESTINATION_SERIALIZATION_ERROR"
FIELD_SIZE_LIMITATION = "DESTINATION_FIELD_SIZE_LIMITATION"


@dataclass(frozen=True, slots=True)
class ValueChange:
    """An entry of `_airbyte_meta.changes`: the place in the record (source keys joined by `.`), what happened, why.

    `original` is the JSON text that the value was received as; None for a change that the source itself reports. Two
    changes that say the same are equal whatever it is, and it is never shown.
    """

    field: str | None
    change: str | None
    reason: str | None
    original: bytes | None = dataclass_field(default=None, compare=False, repr=False)


class Floats(Enum):
    """Which numbers a float column keeps: files of JSON have no word for NaN and the infinities."""

    ANY = "any"
    FINITE = "finite"


Coercer = Callable[[bytes, list[ValueChange]], Value]
"""From a value's JSON text to the value; what had to be done to it is appended to the list."""


def nulled(raw: bytes, changes: list[ValueChange], reason: str) -> Value:
    """Null, and an entry that says so of the JSON text."""
    changes.append(ValueChange("", NULLED, reason, raw))
    return None


def path_step(key: str) -> str:
    """Return a key as one step of a `ValueChange.field`: with a `?` for each lone surrogate, as UTF-8 has none."""
    return key.encode("utf-8", "replace").decode()
