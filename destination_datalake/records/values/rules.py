"""The interface of the rules that convert JSON values to column types. `docs/schema/types.md` documents the rules.

The rules return a value that fits its column exactly as the source sent it. If the column is less precise than a value,
the rules truncate the value. They replace any other value by null. The rules report each such change as a
`ValueChange`. They follow the table of types in the Airbyte protocol.

These rules define the correct result for every value. The native decoder (`records.native`) is faster and returns the
same results, but does not accept all values. The connector applies these rules to the other values.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from destination_datalake.records.decoded import NULLED, SERIALIZATION_ERROR, ValueChange

Value = None | bool | int | float | decimal.Decimal | str | dict[str, "Value"] | list["Value"]
"""A value after conversion, in the form that `pyarrow.array(values, arrow_type(widest(column.type)))` accepts.

A value of a `Date` column is the number of days since 1970-01-01. A value of a `Timestamp` column is the number of
microseconds since 1970-01-01T00:00, in UTC if the type is zoned. A value of a `Struct` column is a dict with field
names as keys.
"""

BLANKS = " \t\r\n"
"""Characters that the rules ignore before and after a number, date or timestamp in a JSON string."""

MAX_CHANGES = 10_000
"""Approximate maximum number of changes to list for one record. A longer list would use memory and help nobody.

Only the coercer for lists enforces this limit. The other coercers add at most one change per field of the schema.
"""


class Floats(Enum):
    """The floats that a data file can store. FINITE excludes NaN and infinities, which JSON files cannot store."""

    ANY = "any"
    FINITE = "finite"


# --- Coercers -------------------------------------------------------------------------------------------------------

Coercer = Callable[[bytes, list[ValueChange]], Value]
"""A function that converts the JSON text of a value, and appends the value's changes to the list.

The text has no surrounding blanks. It may contain what lenient decoders accept, such as NaN, lone surrogates, and bytes
that are not UTF-8. The paths in the appended changes are relative to the value.
"""


class TooManyChanges(Exception):
    """A record has more than MAX_CHANGES changes. The value of the column in which this happens becomes null."""


def nulled(raw: bytes, changes: list[ValueChange], reason: str) -> Value:
    """Return null, and append to `changes` that null replaces the value `raw` for this reason."""
    changes.append(ValueChange("", NULLED, reason, raw))
    return None


def bounded(coercer: Coercer) -> Coercer:
    """Return a coercer that calls `coercer`, and returns null for the whole value if it raises TooManyChanges."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        try:
            return coercer(raw, changes)
        except TooManyChanges:
            # The change of the whole value replaces those of its elements.
            del changes[before:]
            return nulled(raw, changes, SERIALIZATION_ERROR)

    return coerce


def with_key(key: str, coercer: Coercer) -> Coercer:
    """Return a coercer that calls `coercer`, and prepends `key` to the paths of the appended changes."""
    step = path_step(key)

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            prepend_step(step, changes, before)
        return value

    return coerce


def prepend_step(step: str, changes: list[ValueChange], start: int) -> None:
    """Prepend a step to the path of each change whose index is at least `start`."""
    for i in range(start, len(changes)):
        inner = changes[i]
        path = f"{step}.{inner.field}" if inner.field else step
        changes[i] = ValueChange(path, inner.change, inner.reason, inner.original, inner.is_equivalent)


def path_step(key: str) -> str:
    """Return a key as a step of the path `ValueChange.field`.

    Replaces lone surrogates by `?`, because UTF-8 cannot encode them.
    """
    return key.encode("utf-8", "replace").decode()


# --- Rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeRules:
    """The rules that convert any JSON value to one column type."""

    arrow_type: pa.DataType
    """The Arrow type of the converted values. Integers and floats have 64 bits."""
    coerce: Coercer

    def coercer(self, source: str) -> Coercer:
        """Return the coercer for a column of this type. The paths of the coercer's changes begin with `source`.

        The coercers of all columns append to one list of changes per record. If the elements of a list would extend
        these changes beyond MAX_CHANGES, null replaces the column's whole value. This adds at most one more change per
        column.
        """
        return with_key(source, bounded(self.coerce))
