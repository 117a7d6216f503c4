"""How wide the numbers of a type can become."""

from __future__ import annotations

from dataclasses import replace

from destination_datalake.schema.types import ColumnType, Field, Float32, Float64, Int32, Int64, List, Struct


def widest(type_: ColumnType) -> ColumnType:
    """The type with every number in it as wide as it can become."""
    match type_:
        case Int32():
            return Int64()
        case Float32():
            return Float64()
        case Struct(fields):
            return Struct(tuple(map(widest_field, fields)))
        case List(element):
            return List(widest(element))
        case _:
            return type_


def widest_field(field: Field) -> Field:
    """The column or property with its type as wide as it can become."""
    return replace(field, type=widest(field.type))
