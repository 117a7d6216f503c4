"""Read a Parquet file with the present columns of its Iceberg table (Iceberg spec: column projection).

Columns and nested fields are found by field ID: they may have been renamed, moved, promoted, dropped or added since
the file was written. Values never change; a file whose values would have to change is unsupported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa

from destination_datalake.files.parquet import field_id
from destination_datalake.unforeseen import exhaustion


class UnsupportedFile(Exception):
    """A file cannot be read with the table's columns. The text is a clause about the file."""

    uri = ""
    """The URI of the file, if raised within `naming_file`."""


@contextmanager
def naming_file(uri: str) -> Iterator[None]:
    """Set the URI of an UnsupportedFile that is raised."""
    try:
        yield
    except UnsupportedFile as error:
        error.uri = uri
        raise


@contextmanager
def parquet_errors(message: str = "cannot be read as Parquet") -> Iterator[None]:
    """Raise UnsupportedFile with the message if Arrow cannot read a file, unless memory or the disk is exhausted."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if exhaustion(error) is not None:
            raise
        raise UnsupportedFile(message) from error


class Projection:
    """Converts rows of one file to the columns of `target`, an Arrow schema with field IDs at every level."""

    def __init__(self, source: pa.Schema, target: pa.Schema, required_ids: Collection[int] = ()) -> None:
        """Raise UnsupportedFile if the file's schema lacks field IDs, or columns with `required_ids`."""
        self._source = source
        self._target = target
        positions = _by_id(list(source))
        if missing := _ids(target) & set(required_ids) - _ids(source):
            raise UnsupportedFile(f"does not have the columns of its partition (field ids {sorted(missing)})")
        self._positions = [positions.get(_id(field)) for field in target]
        self.fields = [None if position is None else source.field(position) for position in self._positions]
        """For each column of `target` the file's column; None if the file lacks it."""
        self.sources = [None if field is None else field.name for field in self.fields]
        """For each column of `target` the name of the file's column; None if the file lacks it."""
        self.columns = list(dict.fromkeys(name for name in self.sources if name is not None))
        """The names of the file's columns that must be read."""
        if len(set(source.names)) < len(source.names):
            raise UnsupportedFile("has two columns of one name")

    def __call__(self, rows: pa.RecordBatch) -> pa.Table:
        """Return the rows in the table's columns. Raises UnsupportedFile."""
        columns = [
            pa.nulls(rows.num_rows, field.type)
            if position is None
            else _projected(rows.column(self._source.field(position).name), self._source.field(position), field)
            for position, field in zip(self._positions, self._target, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._target)


def _projected(array: pa.Array[Any], source: pa.Field[Any], target: pa.Field[Any]) -> pa.Array[Any]:
    old, new = source.type, target.type
    if old.equals(new, check_metadata=True):  # Metadata has the field IDs of nested fields.
        return array
    if isinstance(new, pa.StructType) and isinstance(old, pa.StructType):
        return _struct(cast("pa.StructArray", array), old, new)
    if isinstance(new, pa.ListType) and isinstance(old, pa.LargeListType | pa.FixedSizeListType):
        # PyIceberg stores Arrow's own types in its files, such as large_list.
        plain = source.with_type(pa.list_(old.value_field))
        return _projected(array.cast(plain.type), plain, target)
    if isinstance(new, pa.ListType) and isinstance(old, pa.ListType):
        of_list = cast("pa.ListArray[Any]", _without_offset(array))
        values = _projected(of_list.values, old.value_field, new.value_field)
        mask = of_list.is_null() if of_list.null_count else None
        return pa.ListArray.from_arrays(of_list.offsets, values, type=new, mask=mask)
    if isinstance(new, pa.MapType) and isinstance(old, pa.MapType):
        of_map = cast("Any", _without_offset(array))
        keys = _projected(of_map.keys, old.key_field, new.key_field)
        items = _projected(of_map.items, old.item_field, new.item_field)
        mask = of_map.is_null() if of_map.null_count else None
        from_arrays = cast("Any", pa.MapArray.from_arrays)
        return cast("pa.Array[Any]", from_arrays(of_map.offsets, keys, items, type=new, mask=mask))
    if not is_promotion(old, new):
        raise UnsupportedFile(f"has column {source.name} as {old}, which is {new} in the table")
    try:
        return array.cast(new)
    except pa.ArrowInvalid as error:
        raise UnsupportedFile(f"has values in column {source.name} that {new} cannot hold") from error


def _struct(array: pa.StructArray, old: pa.StructType, new: pa.StructType) -> pa.Array[Any]:
    positions = _by_id([old.field(index) for index in range(old.num_fields)])
    children = []
    for field in (new.field(index) for index in range(new.num_fields)):
        position = positions.get(_id(field))
        if position is None:
            children.append(pa.nulls(len(array), field.type))
        else:
            children.append(_projected(array.field(position), old.field(position), field))
    if not children:
        raise UnsupportedFile("has a struct without fields")
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(new), mask=mask)


def _without_offset(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return an array that starts at offset 0: `from_arrays` rejects a mask for an array with an offset."""
    return array if not array.offset else array.take(pa.array(range(len(array)), pa.int64()))


def is_promotion(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether values of one type are unchanged in the other, provided that Arrow casts them without an error."""
    types = pa.types
    if types.is_dictionary(old):
        return is_promotion(old.value_type, new) or old.value_type.equals(new)
    if types.is_string(new) or types.is_binary(new):
        return _is_text(old) if types.is_string(new) else _is_text(old) or types.is_fixed_size_binary(old)
    if types.is_timestamp(new):
        return types.is_timestamp(old)
    if types.is_time(new):
        return types.is_time(old)
    if types.is_integer(new):
        return types.is_integer(old)
    if types.is_float64(new):
        return types.is_float32(old)
    return types.is_decimal(new) and types.is_decimal(old)


def _is_text(type_: pa.DataType) -> bool:
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_(type_) for is_ in (*texts, types.is_binary, types.is_large_binary, types.is_binary_view))


def _by_id(fields: Sequence[pa.Field[Any]]) -> dict[int, int]:
    """Return the positions of fields by field ID. Raises UnsupportedFile for a field without ID."""
    positions = {}
    for position, field in enumerate(fields):
        id_ = _id(field)
        if id_ in positions:
            raise UnsupportedFile("has two columns of one field id")
        positions[id_] = position
    return positions


def _ids(fields: Any) -> set[int]:
    """Return the field IDs of fields and of nested struct fields; `fields` is an Arrow schema or struct type."""
    nested = (_ids(field.type) for field in fields if isinstance(field.type, pa.StructType))
    return {_id(field) for field in fields}.union(*nested)


def _id(field: pa.Field[Any]) -> int:
    id_ = field_id(field)
    if id_ is None:
        raise UnsupportedFile("has columns without field ids")
    return id_
