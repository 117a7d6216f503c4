"""The interface of the rules for reading one column type. Each family of types has a module with its rules.

A coercer is the careful rule for one value: a value that fits its column is returned exactly as sent. Any other value
becomes null, or is truncated if the column has a lower precision, and is reported as a `ValueChange`. The rules follow
the protocol's table of types; docs/schema/types.md documents them.

The law of the rules: vectorised rules return exactly the values that `coerce` returns. They may accept fewer texts: a
text that they do not accept is irregular, and is passed to `coerce`, which is slower but never wrong.
"""

from __future__ import annotations

import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

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


class ReadStrategy(Enum):
    """A way to read a column's values. Each strategy accepts everything that the previous one accepts."""

    NATIVE = "Arrow's JSON parser reads the values"
    TEXT = "Arrow's JSON parser reads numbers as strings, as protocol v1 sends them"
    RAW_JSON = "msgspec extracts the values' JSON texts from the lines"


class SchemaMismatch(Exception):
    """A block has values that the present strategies cannot read."""


def require(condition: bool) -> None:
    """Raise SchemaMismatch unless the condition holds."""
    if not condition:
        raise SchemaMismatch


class Parsed(NamedTuple):
    """Values in the rules' `arrow_type`. They are null where `irregular` is true: these texts are for `coerce`."""

    values: pa.Array[Any]
    irregular: pa.Array[Any] | None


class TypeRules(ABC):
    """The rules for one column type: vectorised, by Arrow, and careful, value by value."""

    arrow_type: pa.DataType
    """The type of the values. Numbers have the widest type."""

    native_type: pa.DataType | None
    """The type for Arrow's JSON parser; None if it cannot read the type."""

    text_type: pa.DataType | None
    """The type for Arrow's JSON parser if numbers are sent as strings."""

    shape: Any
    """The type by which msgspec checks a nested value before Arrow parses it."""

    def __init__(self, type_: ColumnType, floats: Floats) -> None:
        self.arrow_type = arrow_type(widest(type_))
        self.floats = floats

    @abstractmethod
    def conform(self, array: Any) -> Any:
        """Convert values read by Arrow to `arrow_type`. Raises SchemaMismatch or ArrowInvalid for irregular values."""

    @abstractmethod
    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the value of one JSON text: the careful rule, which is a `Coercer`."""

    def coercer(self, source: str) -> Coercer:
        """Return the coercer of a column of this type. The paths of its changes begin with the column's source.

        All columns of a record share one list of changes, which has at most MAX_CHANGES entries plus one per column. A
        value that would exceed the limit is nulled as a whole.
        """
        return with_key(source, bounded(self.coerce))

    def read_type(self, strategy: ReadStrategy) -> pa.DataType | None:
        """Return the type for Arrow's JSON parser with this strategy; None if it does not read the values."""
        return {ReadStrategy.NATIVE: self.native_type, ReadStrategy.TEXT: self.text_type}.get(strategy)

    @cached_property
    def strategies(self) -> tuple[ReadStrategy, ...]:
        """The possible strategies for the type, fastest first."""
        if self.native_type is None:
            return (ReadStrategy.RAW_JSON,)
        has_numbers = self.text_type != self.native_type  # Numbers may be sent as strings.
        return tuple(ReadStrategy) if has_numbers else (ReadStrategy.NATIVE, ReadStrategy.RAW_JSON)


class ScalarRules(TypeRules):
    """Rules for scalar values."""

    canonical: str
    """A pattern (RE2) of texts that Arrow casts to exactly the value that `coerce` returns."""

    def conform(self, array: Any) -> Any:
        """Parse strings; return other values unchanged. Raises SchemaMismatch or ArrowInvalid for irregular values."""
        if not self.is_unparsed(array):
            return self.verified(array)
        parsed = self.parse_vectorised(array)
        require(parsed.irregular is None)
        return parsed.values

    def is_unparsed(self, array: Any) -> bool:
        """Return whether Arrow read strings that are not parsed yet."""
        return pa.types.is_string(array.type) and array.type != self.arrow_type

    def verified(self, array: Any) -> Any:
        """Check values read by Arrow's JSON parser, where it is too lenient. Raises as `conform` does."""
        return array

    def parse_vectorised(self, texts: Any) -> Parsed:
        """Return the values of an array of strings; null is null."""
        values = self.parse_all(texts)
        if values is not None:
            return Parsed(values, None)
        canonical: Any = pc.match_substring_regex(texts, self.canonical)
        if pc.all(canonical).as_py() is not False:
            return Parsed(self.cast(texts), None)
        return Parsed(self.cast(pc.if_else(canonical, texts, None)), pc.fill_null(pc.invert(canonical), False))

    def parse_all(self, texts: Any) -> Any:  # noqa: ARG002
        """Return the values if a plain cast is known to be correct; None if the texts must be checked."""
        return None

    def cast(self, texts: Any) -> Any:
        """Return the values of canonical texts."""
        return texts.cast(self.arrow_type)

    def parse_json(self, texts: Any) -> Parsed:
        """Return the values of an array of JSON texts; null is null."""
        # A JSON string without escapes is its content in quotes. Numbers may be sent with or without quotes.
        return self.parse_vectorised(pc.ascii_trim(texts, characters='"'))
