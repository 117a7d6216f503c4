"""Column types of Airbyte's AWS Datalake destination, for streams that continue its tables.

That connector had its own rules from JSON schema to column type: 64-bit numbers from the start, text for every open
schema, no dates in arrays. A column whose type follows from those rules is continued in that type, so that no second
column is added beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeGuard

from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float64,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)

JsonSchema = Mapping[str, object]

_Derived = Literal["text", "JSON", "timestamp", "date", "integer", "number", "boolean", "struct", "array"]
"""The kinds of columns that it derived from schemas (AWS Datalake 0.1.35, stream_writer.py)."""

_SCALARS: Mapping[str, _Derived] = {"integer": "integer", "number": "number", "boolean": "boolean"}
_TIMES: Mapping[object, _Derived] = {"date-time": "timestamp", "date": "date"}


def inherit_types(
    columns: Sequence[Field], json_schema: JsonSchema, existing: Mapping[str, ColumnType | None]
) -> tuple[Field, ...]:
    """Return the stream's columns, with the table's type where AWS Datalake has derived it from the stream's schema.

    `existing` has the types of the table's columns by name. Values that do not fit such a type are null and rejected.
    Fields of flattened objects are new columns: AWS Datalake kept objects as structs.
    """
    properties = json_schema.get("properties")
    if not _is_schema(properties):
        return tuple(columns)
    schemas = {column: None if column.parents else properties.get(column.source) for column in columns}
    return tuple(
        replace(column, type=_inherited_type(schema, existing.get(column.name), column.type))
        for column, schema in schemas.items()
    )


def _inherited_type(schema: object, existing: ColumnType | None, own: ColumnType) -> ColumnType:
    if existing is None or not _is_schema(schema):
        return own
    match _derived_from(schema), existing, own:
        case "text", String() | Json(), _:
            return String()
        case "JSON", String() | Json(), _:
            return Json()
        case "timestamp", Timestamp(), _:
            return Timestamp(zoned=schema.get("airbyte_type") != "timestamp_without_timezone")
        case ("date", Date(), _) | ("integer", Int64(), _) | ("boolean", Boolean(), _):
            return existing
        case "number", Decimal(), _:
            return existing
        case "number", Float64(), _ if schema.get("airbyte_type") != "big_number":  # a double would round it
            return existing
        case "struct", Struct(), Struct(fields):
            return _struct(schema, existing, fields)
        case "array", List(element), List(own_element):
            return List(_inherited_type(_item(schema), element, own_element))
    return own


def _struct(schema: JsonSchema, existing: Struct, fields: Sequence[Field]) -> Struct:
    properties = schema["properties"]
    assert _is_schema(properties)
    inside = {field.name: field.type for field in existing.fields}
    return Struct(
        tuple(
            replace(field, type=_inherited_type(properties[field.source], inside.get(field.name), field.type))
            for field in fields
        )
    )


def _derived_from(schema: JsonSchema) -> _Derived:
    declared = _only_type(schema.get("type"))
    if declared == "object":
        properties = schema.get("properties")
        if not _is_schema(properties) or not properties or schema.get("additionalProperties"):
            return "JSON"
        return "struct" if _closed(properties) else "JSON"
    if declared == "array":
        return _array(schema)
    if declared == "number" and schema.get("airbyte_type") == "integer":
        return "integer"
    if declared == "string":
        return _TIMES.get(schema.get("format"), "text")
    return _SCALARS.get(declared, "text")


def _array(schema: JsonSchema) -> _Derived:
    item = _item(schema)
    if not item or _is_mixed(item.get("type")):
        return "JSON"
    properties = item.get("properties")
    return "array" if not _is_schema(properties) or _closed(properties) else "JSON"


def _item(schema: JsonSchema) -> JsonSchema:
    """Return what that connector read of the schema of an array's items: no formats, `airbyte_type` of numbers only."""
    items = schema.get("items")
    first = items[0] if isinstance(items, list) and items else items
    if not _is_schema(first) or not first:
        return {}
    if first.get("properties"):
        return {"type": "object", "properties": first["properties"]}
    seen = ("type", "airbyte_type") if first.get("type") == "number" else ("type",)
    return {"type": "string", **{key: first[key] for key in seen if key in first}}


def _closed(properties: JsonSchema) -> bool:
    """Whether the properties made a struct: none of them open, none of more than one type, at any depth."""
    return all(_is_schema(schema) and _is_closed(schema) for schema in properties.values())


def _is_closed(schema: JsonSchema) -> bool:
    if schema.get("oneOf") or _is_mixed(schema.get("type")):
        return False
    declared, properties = _only_type(schema.get("type")), schema.get("properties")
    if declared == "object":
        return _is_schema(properties) and bool(properties) and _closed(properties)
    if declared == "array":
        item = _item(schema)
        inside = item.get("properties")
        return bool(item) and (not _is_schema(inside) or _closed(inside))
    return True


def _only_type(declared: object) -> str:
    """Return the one type beside null; `string` if there are several or none."""
    if isinstance(declared, list):
        others = [each for each in declared if each != "null"]
        declared = others[0] if len(others) == 1 else None
    return declared if isinstance(declared, str) else "string"


def _is_mixed(declared: object) -> bool:
    return isinstance(declared, list) and len([each for each in declared if each != "null"]) > 1


def _is_schema(schema: object) -> TypeGuard[JsonSchema]:
    return isinstance(schema, Mapping)
