"""The interface of the careful rules. Each implementation converts the values of one column type.

A coercer is a function that converts one value. It returns a value that fits its column exactly as sent. Any other
value becomes null, or is truncated if the column has a lower precision, and the change is reported as a `ValueChange`.
The rules follow the protocol's table of types, and docs/schema/types.md documents them.

The native decoder (`records.native`) returns exactly the values that `coerce` returns, but it accepts fewer texts. All
other texts are passed to `coerce`, which is slower and defines the correct result.
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
"""A converted value, in the form that `pyarrow.array(values, arrow_type(widest(column.type)))` accepts.

A `Date` is a number of days since 1970-01-01, and a `Timestamp` a number of microseconds since 1970-01-01T00:00 (in UTC
if it is zoned). A `Struct` is a dict by `Field.name`, and a `List` is a list.
"""

BLANKS = " \t\r\n"
"""Characters that are ignored before and after a number, date or timestamp in a string."""

MAX_CHANGES = 10_000
"""Maximum number of changed values that are listed for one record. A longer list would use memory but add little."""


class Floats(Enum):
    """The numbers that a float column can store. JSON files cannot store NaN and infinities."""

    ANY = "any"
    FINITE = "finite"


# --- Coercers -------------------------------------------------------------------------------------------------------

Coercer = Callable[[bytes, list[ValueChange]], Value]
"""A function that converts the JSON text of a value, and appends the changes of the value to the list.

The text is valid JSON without surrounding blanks. The field paths in the appended changes are relative to the value.
"""


class TooManyChanges(Exception):
    """Raised if a record has more than MAX_CHANGES changes. The whole value of the column then becomes null."""


def nulled(raw: bytes, changes: list[ValueChange], reason: str) -> Value:
    """Append to `changes` that the value became null, and return null."""
    changes.append(ValueChange("", NULLED, reason, raw))
    return None


def bounded(coercer: Coercer) -> Coercer:
    """Return a coercer that sets the whole value to null if the given coercer raises TooManyChanges."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        try:
            return coercer(raw, changes)
        except TooManyChanges:
            del changes[before:]
            return nulled(raw, changes, SERIALIZATION_ERROR)

    return coerce


def with_key(key: str, coercer: Coercer) -> Coercer:
    """Return a coercer that also prepends the key to the paths of the changes."""
    step = path_step(key)

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            prepend_step(step, changes, before)
        return value

    return coerce


def prepend_step(step: str, changes: list[ValueChange], start: int) -> None:
    """Prepend a step to the paths of all changes from index `start` on."""
    for i in range(start, len(changes)):
        inner = changes[i]
        path = f"{step}.{inner.field}" if inner.field else step
        changes[i] = ValueChange(path, inner.change, inner.reason, inner.original)


def path_step(key: str) -> str:
    """Return a key as a step in the path `ValueChange.field`.

    Lone surrogates, which UTF-8 cannot encode, become `?`.
    """
    return key.encode("utf-8", "replace").decode()


# --- Rules ------------------------------------------------------------------------------------------------------------


class TypeRules(ABC):
    """The careful rules for one column type, which convert every JSON value.

    The native decoder is faster, but accepts only regular values. All other values are converted by these rules.
    """

    arrow_type: pa.DataType
    """The Arrow type of the converted values. Numbers have their widest type."""

    def __init__(self, type_: ColumnType, floats: Floats) -> None:
        self.arrow_type = arrow_type(widest(type_))
        self.floats = floats

    @abstractmethod
    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the value that a JSON text denotes, and append its changes to `changes`.

        This method is a `Coercer`.
        """

    def coercer(self, source: str) -> Coercer:
        """Return the coercer for a column of this type. The paths of its changes begin with the column's source.

        All columns of a record share one list of changes, which has at most MAX_CHANGES entries plus one per column. If
        a value would exceed this limit, the whole value becomes null.
        """
        return with_key(source, bounded(self.coerce))
