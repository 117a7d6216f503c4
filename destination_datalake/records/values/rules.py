"""The interface of the rules for reading one column type. Each family of types has a module with its rules.

A coercer is the careful rule for one value: a value that fits its column is returned exactly as sent. Any other value
becomes null, or is truncated if the column has a lower precision, and is reported as a `ValueChange`. The rules follow
the protocol's table of types; docs/schema/types.md documents them.

The native decoder (`records.native`) returns exactly the values that `coerce` returns. It accepts fewer texts: all
others are passed to `coerce`, which is slower but never wrong.
"""

from __future__ import annotations

import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum

import pyarrow as pa

from destination_datalake.records.decoded import NULLED, SERIALIZATION_ERROR, ValueChange
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import ColumnType

Value = None | bool | int | float | decimal.Decimal | str | dict[str, "Value"] | list["Value"]
"""A converted value, as `pyarrow.array(values, arrow_type(widest(column.type)))` accepts it.

Days since 1970-01-01 for `Date`, microseconds since 1970-01-01T00:00 (UTC when zoned) for `Timestamp`, a dict by
`Field.name` for `Struct`, a list for `List`.
"""

BLANKS = " \t\r\n"
"""Characters that are ignored around a number, a date or a time in a string."""

MAX_CHANGES = 10_000
"""Maximum number of changed values of one record that are listed. More would take memory without more information."""


class Floats(Enum):
    """The numbers that a float column can store: JSON files cannot store NaN and infinities."""

    ANY = "any"
    FINITE = "finite"


# --- Coercers -------------------------------------------------------------------------------------------------------

Coercer = Callable[[bytes, list[ValueChange]], Value]
"""Converts a value's JSON text, which is valid and without surrounding blanks, and appends its changes to the list.

The paths of the changes are relative to the value.
"""


class TooManyChanges(Exception):
    """A record has more than MAX_CHANGES changes: the whole column becomes null."""


def nulled(raw: bytes, changes: list[ValueChange], reason: str) -> Value:
    """Return null, and record the change."""
    changes.append(ValueChange("", NULLED, reason, raw))
    return None


def bounded(coercer: Coercer) -> Coercer:
    """Return a coercer that nulls the whole value if the given coercer raises TooManyChanges."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        try:
            return coercer(raw, changes)
        except TooManyChanges:
            del changes[before:]
            return nulled(raw, changes, SERIALIZATION_ERROR)

    return coerce


def with_key(key: str, coercer: Coercer) -> Coercer:
    """Return the coercer with a key prepended to the paths of its changes."""
    step = path_step(key)

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            prepend_step(step, changes, before)
        return value

    return coerce


def prepend_step(step: str, changes: list[ValueChange], start: int) -> None:
    """Prepend a step to the paths of the changes, beginning with index `start`."""
    for i in range(start, len(changes)):
        inner = changes[i]
        path = f"{step}.{inner.field}" if inner.field else step
        changes[i] = ValueChange(path, inner.change, inner.reason, inner.original)


def path_step(key: str) -> str:
    """Return a key as one step of a `ValueChange.field`. Lone surrogates, which UTF-8 cannot encode, become `?`."""
    return key.encode("utf-8", "replace").decode()


# --- Rules ------------------------------------------------------------------------------------------------------------


class TypeRules(ABC):
    """The careful rule for the values of one column type."""

    arrow_type: pa.DataType
    """The type of the values. Numbers have the widest type."""

    def __init__(self, type_: ColumnType, floats: Floats) -> None:
        self.arrow_type = arrow_type(widest(type_))
        self.floats = floats

    @abstractmethod
    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the value of one JSON text: the careful rule, which is a `Coercer`."""

    def coercer(self, source: str) -> Coercer:
        """Return the coercer of a column of this type. The paths of its changes begin with the column's source.

        All columns of a record share one list of changes, which has at most MAX_CHANGES entries plus one per column. A
        value that would exceed the limit is nulled as a whole.
        """
        return with_key(source, bounded(self.coerce))
