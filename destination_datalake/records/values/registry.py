"""Every column type and the rules that its values are read by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from destination_datalake.records.changes import Coercer, Floats, Value, ValueChange, below, bounded, path_step
from destination_datalake.records.values.nested import ListRules, StructRules
from destination_datalake.records.values.numbers import (
    DecimalRules,
    ExactFloat,
    ExactFloatRules,
    FloatRules,
    IntegerRules,
)
from destination_datalake.records.values.rules import TypeRules
from destination_datalake.records.values.temporal import DateRules, TimestampRules
from destination_datalake.records.values.text import BooleanRules, JsonTextRules, StringRules
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)


@lru_cache(maxsize=1024)
def rules_for(type_: ColumnType, floats: Floats) -> TypeRules:
    """Return the rules that values of this type are read by.

    They are cached: decoders of nested types are costly to make.
    """
    if isinstance(type_, ExactFloat):  # No type of columns: a way to read one.
        return ExactFloatRules(type_, floats)
    return RULES[type(type_)](type_, floats)


RULES: Mapping[type[ColumnType], Callable[[Any, Floats], TypeRules]] = {
    Boolean: BooleanRules,
    Int32: IntegerRules,
    Int64: IntegerRules,
    Float32: FloatRules,
    Float64: FloatRules,
    Decimal: DecimalRules,
    String: StringRules,
    Json: JsonTextRules,
    Date: DateRules,
    Timestamp: TimestampRules,
    Struct: lambda type_, floats: StructRules(type_, floats, rules_for),
    List: lambda type_, floats: ListRules(type_, floats, rules_for),
}


def coercers(columns: Sequence[Field], floats: Floats = Floats.ANY) -> tuple[Coercer, ...]:
    """Return one coercer per column; the paths of its changes begin with the column's source.

    The list that a coercer appends to is to hold the changes of the record's other values: it is never longer than
    MOST_CHANGES and one for each column. A value that would make it longer is nulled as a whole.
    """
    return tuple(below(path_step(c.source), bounded(rules_for(c.type, floats).coerce)) for c in columns)


class Coerced(NamedTuple):
    """A value as its column takes it, and its changes; their paths are relative to the value."""

    value: Value
    changes: tuple[ValueChange, ...]


def coerce_value(raw: bytes, column_type: ColumnType, floats: Floats = Floats.ANY) -> Coerced:
    """Return the value of one JSON text (valid, without white space around it) for a column. Never raises."""
    changes: list[ValueChange] = []
    value = bounded(rules_for(column_type, floats).coerce)(raw, changes)
    return Coerced(value, tuple(changes))
