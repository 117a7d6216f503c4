"""The rules of every column type.

Numbers, and dates and times, have modules of their own. Here are booleans, strings, JSON text, and objects and lists,
whose rules combine the rules of the nested values.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from destination_datalake.protocol.json_text import (
    NULL,
    can_be_member_name,
    elements_or_none,
    members_or_none,
    string_or_none,
)
from destination_datalake.records.decoded import SERIALIZATION_ERROR, ValueChange
from destination_datalake.records.values.numbers import (
    DecimalRules,
    ExactFloat,
    ExactFloatRules,
    FloatRules,
    IntegerRules,
)
from destination_datalake.records.values.rules import (
    MAX_CHANGES,
    Floats,
    Parsed,
    ScalarRules,
    TooManyChanges,
    TypeRules,
    Value,
    nulled,
    prepend_step,
    with_key,
)
from destination_datalake.records.values.temporal import DateRules, TimestampRules
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
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

_SURROGATE = re.compile(r"[\ud800-\udfff]")


@lru_cache(maxsize=1024)
def rules_for(type_: ColumnType, floats: Floats) -> TypeRules:
    """Return the rules for values of this type. They are cached: decoders of nested types are slow to create."""
    if isinstance(type_, ExactFloat):  # Not a column type, but a way to read a column.
        return ExactFloatRules(type_, floats)
    return RULES[type(type_)](type_, floats)


# --- Booleans, strings, JSON text -------------------------------------------------------------------------------------


class BooleanRules(ScalarRules):
    """true and false."""

    native_type = text_type = pa.bool_()
    shape = bool
    canonical = "^(?:true|false)$"

    def parse_json(self, texts: Any) -> Parsed:
        """Return the values of an array of JSON texts; the string "true" is not a boolean."""
        return self.parse_vectorised(texts)

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the boolean of a JSON text."""
        if raw == b"true":
            return True
        if raw == b"false":
            return False
        return None if raw == NULL else nulled(raw, changes, SERIALIZATION_ERROR)


class StringRules(ScalarRules):
    """The content of a string; the JSON text of any other value."""

    native_type = text_type = pa.string()
    shape = str
    canonical = r"^[^\\]*$"

    def cast(self, texts: Any) -> Any:
        """Return the texts unchanged."""
        return texts

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the unescaped content of a string, or the JSON text of another value."""
        if raw[:1] != b'"':
            return _json_text(raw, changes)
        text = string_or_none(raw)
        return nulled(raw, changes, SERIALIZATION_ERROR) if text is None else text


class JsonTextRules(ScalarRules):
    """The JSON text of a value, exactly as received. Arrow's JSON parser has no type for it."""

    native_type = text_type = None
    shape = Any
    canonical = ""

    def parse_json(self, texts: Any) -> Parsed:
        """Return the texts unchanged."""
        return Parsed(texts, None)

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the JSON text."""
        return _json_text(raw, changes)


def _json_text(raw: bytes, changes: list[ValueChange]) -> Value:
    if raw == NULL:
        return None
    try:
        text = raw.decode()
        if b"NaN" in raw or b"Infinity" in raw:
            json.loads(text, parse_int=len, parse_float=len, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return nulled(raw, changes, SERIALIZATION_ERROR)
    return text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# --- Objects and lists ------------------------------------------------------------------------------------------------


class NestedRules(TypeRules):
    """Shared rules of objects and lists: a filter of JSON texts before Arrow parses them.

    Arrow rejects all texts for one irregular text. So msgspec first checks each text, whether Arrow will probably
    accept it. Rejected texts are passed to `coerce`.
    """

    @cached_property
    def shape(self) -> Any:
        """The type by which msgspec checks JSON texts."""
        return self._shape()

    @abstractmethod
    def _shape(self) -> Any: ...

    @cached_property
    def shape_filter(self) -> Callable[[str], bool]:
        """A function that returns whether Arrow will probably read a JSON text as this type."""
        decode = msgspec.json.Decoder(self.shape).decode

        def has_shape(text: str) -> bool:
            try:
                decode(text)
            except (msgspec.DecodeError, RecursionError):
                return False
            return True

        return has_shape


class StructRules(NestedRules):
    """Objects, read by the keys of their properties and written by the names of their fields."""

    def __init__(self, type_: Struct, floats: Floats) -> None:
        super().__init__(type_, floats)
        self._members = [(field.source, field.name, rules_for(field.type, floats)) for field in type_.fields]
        self._coercers = [(source, name, with_key(source, rules.coerce)) for source, name, rules in self._members]
        self.native_type = _struct_type({source: rules.native_type for source, _, rules in self._members})
        self.text_type = _struct_type({source: rules.text_type for source, _, rules in self._members})

    def conform(self, array: Any) -> Any:
        """Return the structs with the fields' names instead of the properties' keys."""
        members = [rules.conform(array.field(source)) for source, _, rules in self._members]
        named = [pa.field(name, rules.arrow_type) for _, name, rules in self._members]
        return pa.StructArray.from_arrays(members, fields=named, mask=array.is_null())

    def _shape(self) -> Any:
        members = [
            (f"f{i}", rules.shape | None, msgspec.field(name=source, default=None))
            for i, (source, _, rules) in enumerate(self._members)
            if can_be_member_name(source)
        ]
        return msgspec.defstruct("Object", members, gc=False)

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the members of an object by name. The last of equal keys counts; a missing member is null."""
        if raw == NULL:
            return None
        members = members_or_none(raw)
        if members is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        return {name: coercer(members.get(source, NULL), changes) for source, name, coercer in self._coercers}


def _struct_type(members: Mapping[str, pa.DataType | None]) -> pa.DataType | None:
    """Return the type for Arrow; None if it cannot read a member, or a key has a lone surrogate."""
    if any(type_ is None or _SURROGATE.search(source) for source, type_ in members.items()):
        return None
    return pa.struct([pa.field(source, type_) for source, type_ in members.items()])


class ListRules(NestedRules):
    """Lists of values of one type."""

    def __init__(self, type_: List, floats: Floats) -> None:
        super().__init__(type_, floats)
        self._element = element = rules_for(type_.element, floats)
        self.native_type = None if element.native_type is None else pa.list_(element.native_type)
        self.text_type = None if element.text_type is None else pa.list_(element.text_type)

    def conform(self, array: Any) -> Any:
        """Return the lists with their elements conformed."""
        values = self._element.conform(array.values)
        return pa.ListArray.from_arrays(array.offsets, values, type=self.arrow_type, mask=array.is_null())

    def _shape(self) -> Any:
        element = self._element.shape
        return list[element | None]  # type: ignore[valid-type]

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the elements of an array. Raises TooManyChanges if the record has more than MAX_CHANGES changes."""
        if raw == NULL:
            return None
        elements = elements_or_none(raw)
        if elements is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        coerce = self._element.coerce
        values: list[Value] = []
        for i, element in enumerate(elements):
            before = len(changes)
            values.append(coerce(element, changes))
            if len(changes) != before:
                if len(changes) > MAX_CHANGES:
                    raise TooManyChanges
                prepend_step(str(i), changes, before)
        return values


# --- The table --------------------------------------------------------------------------------------------------------

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
    Struct: StructRules,
    List: ListRules,
}
