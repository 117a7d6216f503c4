"""The rules that reading one type of column takes. A type family is a module that states them side by side.

A coercer is the careful rule for one value: a value that fits its column comes out exactly as it was sent. One that
does not comes out as null (or cut, where the column keeps less than was sent), with a `ValueChange` that says so. The
source of the rules is the protocol's table of types; docs/schema/types.md has ours.

The law between the rules: what the vectorised ones take, they turn into exactly what `coerce` makes of it. They may
take less: a text that they do not take is irregular, costs a call of `coerce`, and is never wrong.
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
"""What a value comes out as: what `pyarrow.array(values, arrow_type(widest(column.type)))` takes.

Days since 1970-01-01 for `Date`, microseconds since 1970-01-01T00:00 (UTC when zoned) for `Timestamp`, a dict by
`Field.name` for `Struct`, a list for `List`.
"""

BLANKS = " \t\r\n"
"""Characters around a number, a date or a time in a string that do not count."""

MOST_CHANGES = 10_000
"""The most changed values of one record that are noted one by one; more would say the same and cost memory."""


class Floats(Enum):
    """Which numbers a float column keeps: JSON files have no NaN and no infinities."""

    ANY = "any"
    FINITE = "finite"


# --- Coercers -------------------------------------------------------------------------------------------------------

Coercer = Callable[[bytes, list[ValueChange]], Value]
"""From a value's JSON text (valid, without white space around it) to the value; its changes are appended to the list.

The paths of the changes are relative to the value.
"""


class TooManyChanges(Exception):
    """A record's changes exceed MOST_CHANGES: the column is nulled as a whole."""


def nulled(raw: bytes, changes: list[ValueChange], reason: str) -> Value:
    """Return null, and note that the JSON text became it."""
    changes.append(ValueChange("", NULLED, reason, raw))
    return None


def bounded(coercer: Coercer) -> Coercer:
    """Return the coercer, with a value nulled as a whole for which it raises TooManyChanges."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        try:
            return coercer(raw, changes)
        except TooManyChanges:
            del changes[before:]
            return nulled(raw, changes, SERIALIZATION_ERROR)

    return coerce


def below(key: str, coercer: Coercer) -> Coercer:
    """Return the coercer, with a key put before the paths of its changes."""
    step = path_step(key)

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            put_below(step, changes, before)
        return value

    return coerce


def put_below(step: str, changes: list[ValueChange], start: int) -> None:
    """Put a step before the paths of the changes from `start` on."""
    for i in range(start, len(changes)):
        inner = changes[i]
        path = f"{step}.{inner.field}" if inner.field else step
        changes[i] = ValueChange(path, inner.change, inner.reason, inner.original)


def path_step(key: str) -> str:
    """Return a key as one step of a `ValueChange.field`: with a `?` for each lone surrogate, as UTF-8 has none."""
    return key.encode("utf-8", "replace").decode()


# --- Rules ------------------------------------------------------------------------------------------------------------


class ReadStrategy(Enum):
    """How the values of a column are read; each strategy takes all that the one before it takes."""

    NATIVE = "Arrow's JSON parser reads the values"
    TEXT = "Arrow's JSON parser reads the numbers as strings: protocol v1 sends them so"
    RAW_JSON = "msgspec cuts the values' JSON texts out of the lines"


class SchemaMismatch(Exception):
    """A block holds values that cannot be read with the present strategies."""


def require(condition: bool) -> None:
    """Raise SchemaMismatch unless the condition holds."""
    if not condition:
        raise SchemaMismatch


class Parsed(NamedTuple):
    """Values as the `arrow_type` of their rules, null where `irregular` is true: such texts are left to `coerce`."""

    values: pa.Array[Any]
    irregular: pa.Array[Any] | None


class TypeRules(ABC):
    """How the values of one column type are read: by Arrow together, or one by one."""

    arrow_type: pa.DataType
    """What the values are read as, with numbers as wide as they can become."""

    native_type: pa.DataType | None
    """What Arrow's JSON parser is asked for; None if it cannot read the type."""

    text_type: pa.DataType | None
    """What Arrow's JSON parser is asked for where numbers are sent as strings."""

    shape: Any
    """The type that msgspec checks a value inside an object or a list for, before Arrow parses it."""

    def __init__(self, type_: ColumnType, floats: Floats) -> None:
        self.arrow_type = arrow_type(widest(type_))
        self.floats = floats

    @abstractmethod
    def conform(self, array: Any) -> Any:
        """Return what Arrow read, as `arrow_type`. Raises SchemaMismatch, or ArrowInvalid, if a value is irregular."""

    @abstractmethod
    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the value of one JSON text: the careful rule, a `Coercer`."""

    def coercer(self, source: str) -> Coercer:
        """Return the coercer of a column of this type; the paths of its changes begin with the column's source.

        The list that it appends to is to hold the changes of the record's other values: it is never longer than
        MOST_CHANGES and one for each column. A value that would make it longer is nulled as a whole.
        """
        return below(source, bounded(self.coerce))

    def read_type(self, strategy: ReadStrategy) -> pa.DataType | None:
        """Return what Arrow's JSON parser is asked for with this strategy; None if it does not read the values."""
        return {ReadStrategy.NATIVE: self.native_type, ReadStrategy.TEXT: self.text_type}.get(strategy)

    @cached_property
    def strategies(self) -> tuple[ReadStrategy, ...]:
        """The strategies for the type, fastest first."""
        if self.native_type is None:
            return (ReadStrategy.RAW_JSON,)
        has_numbers = self.text_type != self.native_type  # They may be sent as strings.
        return tuple(ReadStrategy) if has_numbers else (ReadStrategy.NATIVE, ReadStrategy.RAW_JSON)


class ScalarRules(TypeRules):
    """Rules for values without values inside."""

    canonical: str
    """A pattern (RE2) of texts that Arrow casts to the very value that `coerce` gives."""

    def conform(self, array: Any) -> Any:
        """Return strings parsed, all else as it is. Raises SchemaMismatch, or ArrowInvalid, if a value is irregular."""
        if not self.is_unparsed(array):
            return self.verified(array)
        parsed = self.parse_vectorised(array)
        require(parsed.irregular is None)
        return parsed.values

    def is_unparsed(self, array: Any) -> bool:
        """Whether Arrow read strings that are yet to become the type's values."""
        return pa.types.is_string(array.type) and array.type != self.arrow_type

    def verified(self, array: Any) -> Any:
        """Return values that Arrow's JSON parser read. Raises as `conform` does where the parser is too lenient."""
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
        """Return the values if a cast alone is known to give them; None if the texts have to be looked at."""
        return None

    def cast(self, texts: Any) -> Any:
        """Return the values of canonical texts."""
        return texts.cast(self.arrow_type)

    def parse_json(self, texts: Any) -> Parsed:
        """Return the values of an array of JSON texts; null is null."""
        # The text of a string without escapes is its content; a number needs no quotes to be one.
        return self.parse_vectorised(pc.ascii_trim(texts, characters='"'))
