"""From the columns of a Parquet file to those that its Iceberg table has now (Iceberg spec: column projection).

Columns, and fields inside them, are found by field id: they may have been renamed, moved, promoted, dropped or added
since the file was written. No value changes; a file for which that cannot be had is unsuitable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa

from destination_datalake.files.parquet import field_id
from destination_datalake.unforeseen import exhaustion


class Unsuitable(Exception):
    """A file whose rows cannot be written with the table's columns. The text is a clause about the file."""

    uri = ""
    """That of the file, if it is within `naming`."""


@contextmanager
def naming(uri: str) -> Iterator[None]:
    """Give the URI of the file to an Unsuitable that is raised."""
    try:
        yield
    except Unsuitable as error:
        error.uri = uri
        raise


@contextmanager
def readable(otherwise: str = "cannot be read as Parquet") -> Iterator[None]:
    """Raise Unsuitable with the text `otherwise` where Arrow fails to read a file but by exhaustion."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if exhaustion(error) is not None:
            raise
        raise Unsuitable(otherwise) from error


class Projection:
    """Turns rows of one file into rows with the columns of `target`, an Arrow schema with field ids at every level."""

    def __init__(self, source: pa.Schema, target: pa.Schema, required_ids: Collection[int] = ()) -> None:
        """Raise Unsuitable for a file of this schema that lacks field ids, or columns with `required_ids`."""
        self._source = source
        self._target = target
        positions = _by_id(list(source))
        if missing := _ids(target) & set(required_ids) - _ids(source):
            raise Unsuitable(f"does not have the columns of its partition (field ids {sorted(missing)})")
        self._positions = [positions.get(_id(field)) for field in target]
        self.fields = [None if position is None else source.field(position) for position in self._positions]
        """For each column of `target` the file's column, None if it has none."""
        self.sources = [None if field is None else field.name for field in self.fields]
        """For each column of `target` the name of the file's column, None if it has none."""
        self.columns = list(dict.fromkeys(name for name in self.sources if name is not None))
        """The names of the file's columns that are needed."""
        if len(set(source.names)) < len(source.names):
            raise Unsuitable("has two columns of one name")

    def __call__(self, rows: pa.RecordBatch) -> pa.Table:
        """Return the rows in the table's columns. Raises Unsuitable."""
        columns = [
            pa.nulls(rows.num_rows, field.type)
            if position is None
            else _projected(rows.column(self._source.field(position).name), self._source.field(position), field)
            for position, field in zip(self._positions, self._target, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._target)


def _projected(array: pa.Array[Any], source: pa.Field[Any], target: pa.Field[Any]) -> pa.Array[Any]:
    old, new = source.type, target.type
    if old.equals(new, check_metadata=True):  # With the field ids inside it.
        return array
    if isinstance(new, pa.StructType) and isinstance(old, pa.StructType):
        return _struct(cast("pa.StructArray", array), old, new)
    if isinstance(new, pa.ListType) and isinstance(old, pa.LargeListType | pa.FixedSizeListType):
        # The types of Arrow that a writer had are in its file, as PyIceberg's.
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
        raise Unsuitable(f"has column {source.name} as {old}, which is {new} in the table")
    try:
        return array.cast(new)
    except pa.ArrowInvalid as error:
        raise Unsuitable(f"has values in column {source.name} that {new} cannot hold") from error


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
        raise Unsuitable("has a struct without fields")
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(new), mask=mask)


def _without_offset(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return an array that is no slice of another one: Arrow makes none of slices with nulls."""
    return array if not array.offset else array.take(pa.array(range(len(array)), pa.int64()))


def is_promotion(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether values of one type are the same in the other, provided that Arrow casts them without complaint."""
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
    """Return the positions of fields by their ids. Raises Unsuitable if one has none."""
    positions = {}
    for position, field in enumerate(fields):
        id_ = _id(field)
        if id_ in positions:
            raise Unsuitable("has two columns of one field id")
        positions[id_] = position
    return positions


def _ids(fields: Any) -> set[int]:
    """Return the ids of fields, and of those in structs among them; `fields` is an Arrow schema or struct type."""
    nested = (_ids(field.type) for field in fields if isinstance(field.type, pa.StructType))
    return {_id(field) for field in fields}.union(*nested)


def _id(field: pa.Field[Any]) -> int:
    id_ = field_id(field)
    if id_ is None:
        raise Unsuitable("has columns without field ids")
    return id_
