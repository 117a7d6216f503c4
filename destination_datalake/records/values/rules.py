"""The interface of the rules that convert JSON values to column types. `docs/schema/types.md` documents the rules.

A value that fits its column is stored exactly as sent. Any other value becomes null, or is truncated if the column is
less precise. Each such change is reported as a `ValueChange`. The rules follow the table of types in the Airbyte
protocol.

The native decoder (`records.native`) produces the same values faster, but accepts fewer texts. These rules convert all
other texts, and define the correct result.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from destination_datalake.records.decoded import NULLED, SERIALIZATION_ERROR, ValueChange

Value = None | bool | int | float | decimal.Decimal | str | dict[str, "Value"] | list["Value"]
"""A converted value, which `pyarrow.array(values, arrow_type(widest(column.type)))` accepts.

A `Date` is the number of days since 1970-01-01. A `Timestamp` is the number of microseconds since 1970-01-01T00:00, in
UTC if it is zoned. A `Struct` is a dict with field names as keys.
"""

BLANKS = " \t\r\n"
"""Characters that are ignored around a number, date or timestamp in a JSON string."""

MAX_CHANGES = 10_000
"""Maximum number of changes that are listed for one record. A longer list would use memory and help nobody."""


class Floats(Enum):
    """The floats that a data file can store. JSON files cannot store NaN and infinities."""

    ANY = "any"
    FINITE = "finite"


# --- Coercers -------------------------------------------------------------------------------------------------------

Coercer = Callable[[bytes, list[ValueChange]], Value]
"""Converts the JSON text of a value. Appends the value's changes to the list.

The text is valid JSON without surrounding blanks. Paths in the changes are relative to the value.
"""


class TooManyChanges(Exception):
    """Raised if a record has more than MAX_CHANGES changes. The whole value then becomes null."""


def nulled(raw: bytes, changes: list[ValueChange], reason: str) -> Value:
    """Return null, and append the reason to `changes`."""
    changes.append(ValueChange("", NULLED, reason, raw))
    return None


def bounded(coercer: Coercer) -> Coercer:
    """Return a coercer that returns null for the whole value if `coercer` raises TooManyChanges."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        try:
            return coercer(raw, changes)
        except TooManyChanges:
            del changes[before:]
            return nulled(raw, changes, SERIALIZATION_ERROR)

    return coerce


def with_key(key: str, coercer: Coercer) -> Coercer:
    """Return a coercer that prepends `key` to the paths of the value's changes."""
    step = path_step(key)

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            prepend_step(step, changes, before)
        return value

    return coerce


def prepend_step(step: str, changes: list[ValueChange], start: int) -> None:
    """Prepend a step to the paths of the changes from index `start` on."""
    for i in range(start, len(changes)):
        inner = changes[i]
        path = f"{step}.{inner.field}" if inner.field else step
        changes[i] = ValueChange(path, inner.change, inner.reason, inner.original, inner.is_equivalent)


def path_step(key: str) -> str:
    """Return a key as a step of the path `ValueChange.field`.

    Lone surrogates become `?`, because UTF-8 cannot encode them.
    """
    return key.encode("utf-8", "replace").decode()


# --- Rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeRules:
    """The rules that convert any JSON value to one column type.

    The native decoder is faster, but accepts only regular values. These rules convert all other values.
    """

    arrow_type: pa.DataType
    """The Arrow type of the converted values. Numbers have 64 bits."""
    coerce: Coercer

    def coercer(self, source: str) -> Coercer:
        """Return the coercer for a column of this type. `source` starts the paths of its changes.

        All columns of a record append to one list. A value that would extend it beyond MAX_CHANGES becomes null, which
        adds one more change per column at most.
        """
        return with_key(source, bounded(self.coerce))
