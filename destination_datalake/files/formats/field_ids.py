"""Iceberg field ids in Arrow schemas, by which readers find a data file's columns (Iceberg spec: column projection)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

_KEY = "PARQUET:field_id"  # The key of Arrow's Parquet writer, which stores the id in the file's schema.


def with_field_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """Return the schema with the id of every field, nested ones too, from `ids` by dotted path ("items.element.price").

    The paths are unambiguous because names have no dots (see `schema.names`). Raises KeyError for a field without id.
    """
    return pa.schema([_numbered(field, field.name, ids) for field in schema])


def _numbered(field: pa.Field[Any], path: str, ids: Mapping[str, int]) -> pa.Field[Any]:
    type_ = field.type
    if pa.types.is_struct(type_):
        children = [type_.field(i) for i in range(type_.num_fields)]
        type_ = pa.struct([_numbered(child, f"{path}.{child.name}", ids) for child in children])
    elif pa.types.is_list(type_):
        type_ = pa.list_(_numbered(type_.value_field.with_name("element"), f"{path}.element", ids))
    return field.with_type(type_).with_metadata({_KEY: str(ids[path])})


def promote_floats(schema: pa.Schema, ids: Collection[int]) -> pa.Schema:
    """Return the schema with floats of these field ids, at any depth, as doubles; all else as it was, ids too."""
    return pa.schema([_promoted(field, ids) for field in schema])


def _promoted(field: pa.Field[Any], ids: Collection[int]) -> pa.Field[Any]:
    type_ = field.type
    if pa.types.is_float32(type_) and int((field.metadata or {}).get(_KEY.encode(), -1)) in ids:
        return field.with_type(pa.float64())
    if pa.types.is_struct(type_):
        children = [type_.field(i) for i in range(type_.num_fields)]
        return field.with_type(pa.struct([_promoted(child, ids) for child in children]))
    if pa.types.is_list(type_):
        return field.with_type(pa.list_(_promoted(type_.value_field, ids)))
    return field
