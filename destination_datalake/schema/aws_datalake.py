"""The columns of a table that Airbyte's AWS Datalake destination made, as a stream goes on writing to them.

That connector had a rule of its own from a JSON schema to a column's type: wide numbers from the start, text where a
schema leaves anything open, no dates in arrays. Where a table's column is what that rule made, the stream takes the
column's type instead of the one that it would have in a new table, so that no second column begins beside the first.
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

Schema = Mapping[str, object]

_Made = Literal["text", "JSON", "timestamp", "date", "integer", "number", "boolean", "struct", "array"]
"""What that connector made of a schema (AWS Datalake 0.1.35, stream_writer.py)."""

_SCALARS: Mapping[str, _Made] = {"integer": "integer", "number": "number", "boolean": "boolean"}
_TIMES: Mapping[object, _Made] = {"date-time": "timestamp", "date": "date"}


def inherit_types(
    columns: Sequence[Field], json_schema: Schema, there: Mapping[str, ColumnType | None]
) -> tuple[Field, ...]:
    """The stream's columns, those of them in the types of the table's columns that AWS Datalake made for them.

    `there` has the table's columns by name. Values that do not fit such a type are null and rejects, as ever.
    """
    properties = json_schema.get("properties")
    if not _is_schema(properties):
        return tuple(columns)
    return tuple(
        replace(column, type=_continued(properties.get(column.source), there.get(column.name), column.type))
        for column in columns
    )


def _continued(schema: object, there: ColumnType | None, ours: ColumnType) -> ColumnType:
    if there is None or not _is_schema(schema):
        return ours
    match _made_of(schema), there, ours:
        case "text", String() | Json(), _:
            return String()
        case "JSON", String() | Json(), _:
            return Json()
        case "timestamp", Timestamp(), _:
            return Timestamp(zoned=schema.get("airbyte_type") != "timestamp_without_timezone")
        case ("date", Date(), _) | ("integer", Int64(), _) | ("boolean", Boolean(), _):
            return there
        case "number", Decimal(), _:
            return there
        case "number", Float64(), _ if schema.get("airbyte_type") != "big_number":  # which a double would round
            return there
        case "struct", Struct(), Struct(fields):
            return _struct(schema, there, fields)
        case "array", List(element), List(wanted):
            return List(_continued(_item(schema), element, wanted))
    return ours


def _struct(schema: Schema, there: Struct, fields: Sequence[Field]) -> Struct:
    properties = schema["properties"]
    assert _is_schema(properties)
    inside = {field.name: field.type for field in there.fields}
    return Struct(
        tuple(
            replace(field, type=_continued(properties[field.source], inside.get(field.name), field.type))
            for field in fields
        )
    )


def _made_of(schema: Schema) -> _Made:
    declared = _only_type(schema.get("type"))
    if declared == "object":
        properties = schema.get("properties")
        return "struct" if _is_schema(properties) and properties and _closed(properties) else "JSON"
    if declared == "array":
        return _array(schema)
    if declared == "number" and schema.get("airbyte_type") == "integer":
        return "integer"
    if declared == "string":
        return _TIMES.get(schema.get("format"), "text")
    return _SCALARS.get(declared, "text")


def _array(schema: Schema) -> _Made:
    item = _item(schema)
    if not item or _is_mixed(item.get("type")):
        return "JSON"
    properties = item.get("properties")
    return "array" if not _is_schema(properties) or _closed(properties) else "JSON"


def _item(schema: Schema) -> Schema:
    """The schema of an array's items as far as it was looked at: not for dates, and for one way to say integer."""
    items = schema.get("items")
    first = items[0] if isinstance(items, list) and items else items
    if not _is_schema(first) or not first:
        return {}
    if first.get("properties"):
        return {"type": "object", "properties": first["properties"]}
    seen = ("type", "airbyte_type") if first.get("type") == "number" else ("type",)
    return {"type": "string", **{key: first[key] for key in seen if key in first}}


def _closed(properties: Schema) -> bool:
    """Whether a struct could be made of them: nothing inside that is open or of more than one type."""
    return all(_is_schema(schema) and _is_closed(schema) for schema in properties.values())


def _is_closed(schema: Schema) -> bool:
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
    """The one type beside null; `string` where there are several or none."""
    if isinstance(declared, list):
        others = [each for each in declared if each != "null"]
        declared = others[0] if len(others) == 1 else None
    return declared if isinstance(declared, str) else "string"


def _is_mixed(declared: object) -> bool:
    return isinstance(declared, list) and len([each for each in declared if each != "null"]) > 1


def _is_schema(schema: object) -> TypeGuard[Schema]:
    return isinstance(schema, Mapping)
