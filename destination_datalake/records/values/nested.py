"""Objects and lists. Their rules are made of those of the values inside."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from destination_datalake.protocol.json_text import NULL, can_be_member_name, elements_or_none, members_or_none
from destination_datalake.records.changes import (
    MOST_CHANGES,
    SERIALIZATION_ERROR,
    Floats,
    TooManyChanges,
    Value,
    ValueChange,
    below,
    nulled,
    path_step,
    put_below,
)
from destination_datalake.records.values.rules import TypeRules
from destination_datalake.schema.types import ColumnType, List, Struct

RulesFor = Callable[[ColumnType, Floats], TypeRules]
"""From a type to its rules: the registry, which imports this module."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")


class NestedRules(TypeRules):
    """What objects and lists share: a filter of JSON texts before Arrow parses them.

    Arrow refuses all texts for one that is irregular. So msgspec checks one after the other whether Arrow will likely
    read it. What either refuses is left to `coerce`.
    """

    @cached_property
    def shape(self) -> Any:
        """What msgspec checks JSON texts for."""
        return self._shape()

    @abstractmethod
    def _shape(self) -> Any: ...

    @cached_property
    def shape_filter(self) -> Callable[[str], bool]:
        """Whether a JSON text is likely one that Arrow reads as this type."""
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

    def __init__(self, type_: Struct, floats: Floats, rules_for: RulesFor) -> None:
        super().__init__(type_, floats)
        self._members = [(field.source, field.name, rules_for(field.type, floats)) for field in type_.fields]
        self._coercers = [
            (source, name, below(path_step(source), rules.coerce)) for source, name, rules in self._members
        ]
        self.native_type = _struct_type({source: rules.native_type for source, _, rules in self._members})
        self.text_type = _struct_type({source: rules.text_type for source, _, rules in self._members})

    def conform(self, array: Any) -> Any:
        """Return the structs under the fields' names."""
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
        """Return the members of an object by name. Of equal keys the last one counts, a missing one is null."""
        if raw == NULL:
            return None
        members = members_or_none(raw)
        if members is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        return {name: coercer(members.get(source, NULL), changes) for source, name, coercer in self._coercers}


def _struct_type(members: Mapping[str, pa.DataType | None]) -> pa.DataType | None:
    """Return what Arrow is asked for; None if it cannot read a member, or a key with a lone surrogate."""
    if any(type_ is None or _SURROGATE.search(source) for source, type_ in members.items()):
        return None
    return pa.struct([pa.field(source, type_) for source, type_ in members.items()])


class ListRules(NestedRules):
    """Lists of values of one type."""

    def __init__(self, type_: List, floats: Floats, rules_for: RulesFor) -> None:
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
        """Return the elements of an array. Raises TooManyChanges once the record's changes exceed MOST_CHANGES."""
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
                if len(changes) > MOST_CHANGES:
                    raise TooManyChanges
                put_below(str(i), changes, before)
        return values
