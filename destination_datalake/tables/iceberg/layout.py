"""The partition spec and the sort order of a table, which options can set and all writers follow.

Table properties record the options that the connector last applied. The connector applies the options again only if
the options have changed. So if another engine sets a new partition spec or sort order in the meantime, the table keeps
the new one.

Writers use the present partition spec and sort order of the table, even if another engine has set them.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.partitioning import PartitionField as IcebergField
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection
from pyiceberg.table.sorting import SortField as IcebergSortField
from pyiceberg.table.sorting import SortOrder as IcebergSortOrder
from pyiceberg.table.update import SetDefaultSortOrderUpdate, UpdatesAndRequirements
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import Transform, TruncateTransform, VoidTransform
from pyiceberg.transforms import parse_transform as iceberg_transform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StructType

from destination_datalake.files.plan import DataFile
from destination_datalake.partitioning.paths import IcebergPath
from destination_datalake.partitioning.spec import (
    PartitionField,
    Partitioning,
    Since1970,
    SortField,
    SortOrder,
    Void,
    parse_transform,
)
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.iceberg import from_iceberg
from destination_datalake.schema.types import Field, Struct
from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)


PARTITIONS_PROPERTY = "airbyte.partition-by"
SORT_ORDER_PROPERTY = "airbyte.sort-by"

_UNITS = ("year", "month", "day", "hour")


@dataclass(frozen=True, slots=True)
class WantedLayout:
    """The partition fields and the sort order that the options define for a stream.

    If `partition_by` is None, the table keeps its partition spec. If `sort_by` is None, the table keeps its sort order.
    """

    stream: StreamId
    partition_by: tuple[PartitionField, ...] | None
    sort_by: tuple[SortField, ...] | None

    def properties(self) -> dict[str, str]:
        """Return the table properties that record this layout."""
        values: dict[str, list[object]] = {}
        if self.partition_by is not None:
            values[PARTITIONS_PROPERTY] = [
                [field.name, list(field.source), str(field.transform)] for field in self.partition_by
            ]
        if self.sort_by is not None:
            values[SORT_ORDER_PROPERTY] = [
                [list(field.source), str(field.transform), field.ascending, field.nulls_first] for field in self.sort_by
            ]
        return {name: json.dumps(value, ensure_ascii=False, separators=(",", ":")) for name, value in values.items()}

    def new_spec(self, schema: Schema) -> PartitionSpec:
        """Return the partition spec for a new table with this schema."""
        return PartitionSpec(*_fields(self._sources(schema), {}, schema, PARTITION_FIELD_ID_START, frozenset()))

    def iceberg_sort_order(self, schema: Schema) -> IcebergSortOrder:
        """Return the sort order as an Iceberg sort order for a table with this schema."""
        ids = {path: id_ for id_, path in source_paths(schema).items()}
        fields = []
        for field in self.sort_by or ():
            transform = iceberg_transform(str(field.transform))
            direction = SortDirection.ASC if field.ascending else SortDirection.DESC
            nulls = NullOrder.NULLS_FIRST if field.nulls_first else NullOrder.NULLS_LAST
            fields.append(IcebergSortField(ids[field.source], transform, direction, nulls))
        return IcebergSortOrder(*fields) if fields else UNSORTED_SORT_ORDER

    def apply(self, transaction: Transaction) -> None:
        """Set the partition spec and sort order of the table if the options have changed, and record the options."""
        metadata = transaction.table_metadata
        changed = {name: text for name, text in self.properties().items() if metadata.properties.get(name) != text}
        if PARTITIONS_PROPERTY in changed:
            fields = self._evolved(metadata)
            if fields != metadata.spec().fields:
                _SetSpec(transaction, fields).commit()
        if SORT_ORDER_PROPERTY in changed:
            order = self.iceberg_sort_order(metadata.schema())
            if order.fields != metadata.sort_order().fields:
                _SetSortOrder(transaction, order.fields).commit()
        if changed:
            transaction.set_properties(changed)

    def warn_of_difference(self, metadata: TableMetadata, table: TableName) -> None:
        """Log a warning if the partition spec or sort order of the table differs from this layout.

        Call this method only for a table that this connector did not create for the stream. Such a table keeps its
        partition spec and sort order.
        """
        differs = []
        if self.partition_by is not None:
            present = {(field.source_id, str(field.transform)) for field in metadata.spec().fields}
            if {(id_, str(field.transform)) for id_, field in self._sources(metadata.schema())} != present:
                differs.append("partitioned")
        if self.sort_by is not None:
            order = self.iceberg_sort_order(metadata.schema())
            if order.fields != metadata.sort_order().fields:
                differs.append("sorted")
        if differs:
            _logger.warning(
                "Table %s is not %s as the options configure, because this connector did not create the table for "
                "stream %s. The table keeps its layout. To change the layout, use ALTER TABLE.",
                table,
                " and ".join(differs),
                self.stream,
            )

    def _evolved(self, metadata: TableMetadata) -> tuple[IcebergField, ...]:
        schema, specs = metadata.schema(), metadata.specs().values()
        present = metadata.spec().fields
        known = [field for spec in specs for field in spec.fields if not isinstance(field.transform, VoidTransform)]
        if metadata.format_version == 1:
            # In format version 1, every new spec begins with the fields of the previous spec (Iceberg spec: Partition
            # Evolution).
            ids = {field.field_id: field.source_id for field in present}
            known = [field for field in known if ids.get(field.field_id) == field.source_id]
        # A field with the source and transform of an earlier field must reuse its ID (Iceberg spec: Partition
        # Evolution).
        ids_of = {(field.source_id, field.transform): field.field_id for field in known}
        names = frozenset((field.name, field.field_id) for spec in specs for field in spec.fields)
        next_id = max(metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1) + 1
        fields = _fields(self._sources(schema), ids_of, schema, next_id, names)
        if metadata.format_version > 1:
            return fields
        # In format version 1, a dropped field stays as a void field, so that positions and IDs do not change.
        remaining_fields = {field.field_id: field for field in fields}
        previous_fields = tuple(
            remaining_fields.pop(
                field.field_id, IcebergField(field.source_id, field.field_id, VoidTransform(), field.name)
            )
            for field in present
        )
        return (*previous_fields, *remaining_fields.values())

    def _sources(self, schema: Schema) -> list[tuple[int, PartitionField]]:
        """Return the wanted partition fields, each with the field ID of its source column.

        If the options partition a column by several units of time, return only the field with the finest unit.
        """
        ids = {path: id_ for id_, path in source_paths(schema).items()}
        sources = [(ids[field.source], field) for field in self.partition_by or ()]
        finest: dict[int, int] = {}
        for id_, field in sources:
            if isinstance(field.transform, Since1970):
                finest[id_] = max(finest.get(id_, 0), _UNITS.index(field.transform.unit))
        distinct: dict[tuple[int, str], tuple[int, PartitionField]] = {}
        for id_, field in sources:
            if not isinstance(field.transform, Since1970) or field.transform.unit == _UNITS[finest[id_]]:
                distinct.setdefault((id_, str(field.transform)), (id_, field))
        return list(distinct.values())


def _fields(
    sources: Sequence[tuple[int, PartitionField]],
    ids: Mapping[tuple[int, Transform[Any, Any]], int],
    schema: Schema,
    next_id: int,
    names: frozenset[tuple[str, int]],
) -> tuple[IcebergField, ...]:
    """Return Iceberg partition fields whose names are unique in all specs.

    If `ids` contains an ID for the source and transform of a field, the field keeps this ID. All other fields get new
    IDs, which begin with `next_id`. `names` contains the names and IDs of the fields in all existing specs.
    """
    new_ids = itertools.count(next_id)
    columns = {name.lower(): id_ for name, id_ in index_by_name(schema).items()}
    taken = {(name.lower(), id_) for name, id_ in names}
    fields = []
    for source_id, field in sources:
        transform = iceberg_transform(str(field.transform))
        id_ = ids.get((source_id, transform))
        id_ = next(new_ids) if id_ is None else id_
        # An identity field may have the name of its source column, but of no other column (Iceberg: PartitionSpec).
        name, own = field.name, source_id if str(transform) == "identity" else None
        while columns.get(name.lower(), own) != own or any(
            name.lower() == taken_name and id_ != taken_id for taken_name, taken_id in taken
        ):
            name = f"{name}_{id_}"
        taken.add((name.lower(), id_))
        fields.append(IcebergField(source_id, id_, transform, name))
    return tuple(fields)


class _SetSpec(UpdateSpec):
    """Sets the table's default partition spec to a spec with the given fields.

    Reuses an existing spec with the same fields. PyIceberg's own operations cannot replace a field with another field
    of the same name.
    """

    def __init__(self, transaction: Transaction, fields: tuple[IcebergField, ...]) -> None:
        super().__init__(transaction)
        self._fields = fields

    def _apply(self) -> PartitionSpec:
        specs = self._transaction.table_metadata.specs()
        existing_spec = next((spec for spec in specs.values() if spec.fields == self._fields), None)
        return existing_spec or PartitionSpec.model_validate({"spec-id": max(specs) + 1, "fields": self._fields})


class _SetSortOrder(UpdateSortOrder):
    """Sets the table's default sort order to a sort order with the given fields.

    Reuses an existing sort order with the same fields. If a table was created with a sort order, PyIceberg's own
    operations cannot remove the sort order.
    """

    def __init__(self, transaction: Transaction, fields: Sequence[IcebergSortField]) -> None:
        super().__init__(transaction)
        self._fields = list(fields)

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        default = SetDefaultSortOrderUpdate.model_validate({"sort-order-id": self._apply().order_id})
        return (*updates[:-1], default), requirements


# --- the partition spec that writers follow ---------------------------------------------------------------------------


_INT_MAX = 2**31 - 1

Path = tuple[str, ...]
"""The names from a column down to a nested field. The path of a top-level column contains only the column's name."""


def source_paths(schema: Schema) -> dict[int, Path]:
    """Return the paths of all columns and of all fields inside structs, by field ID.

    Only these fields can be the source of a partition field. Fields inside lists or maps cannot.
    """
    return {field.field_id: path for path, field in _nested_paths(schema.fields, ())}


def partitioning(metadata: TableMetadata, columns: Sequence[Field], max_open: int) -> Partitioning | None:
    """Return how the table's default partition spec partitions rows with these columns.

    A partition value is null in every row if the partition field's transform is void, or if the stream does not write
    the field's source column. Return None if all partition values are null. `max_open` is the maximum number of
    partitions for which a writer keeps a file open.
    """
    schema, spec = metadata.schema(), metadata.spec()
    paths = source_paths(schema)
    fields = tuple(
        PartitionField(field.name, path, parse_transform(str(field.transform)) if is_written(path, columns) else Void())
        for field in spec.fields
        for path in [paths.get(field.source_id, (field.name,))]
    )
    if all(field.transform == Void() for field in fields):
        return None
    sources = (schema.find_type(field.source_id) if field.source_id in paths else None for field in spec.fields)
    types = tuple(None if type_ is None else from_iceberg(type_) for type_ in sources)
    return Partitioning(fields, IcebergPath(fields, types), max_open, spec.spec_id)


def is_written(path: Path, columns: Sequence[Field]) -> bool:
    """Return whether the field at a path is in the stream's `columns` or in a metadata column."""
    fields: Sequence[Field] = (*METADATA_COLUMNS, *columns)
    for depth, name in enumerate(path, start=1):
        column = next((field for field in fields if field.name == name), None)
        if column is None:
            return False
        if depth == len(path):
            return True
        fields = column.type.fields if isinstance(column.type, Struct) else ()
    return False


def outdated(file: DataFile, metadata: TableMetadata) -> str | None:
    """Return why a file does not match the table's default partition spec, as a clause. None if the file matches."""
    # A file without partition values fits every spec whose values are null for its columns.
    if file.partition:
        fits = file.spec_id == metadata.default_spec_id
    else:
        fits = metadata.spec().is_unpartitioned() or partitioning(metadata, file.columns, 1) is None
    return None if fits else "its partition spec was changed after the files were planned"


def partition_record(file: DataFile, metadata: TableMetadata) -> Record:
    """Return the partition values of a file as a record for a manifest of the table's default partition spec.

    A file may store 32-bit integers for a column that was later promoted to long. If the writer truncated such an
    integer, the result may have overflowed like a Java int. The result is then not a multiple of the truncation width.
    This function replaces it with the result for a long.
    """
    values = list(file.partition or [None] * len(metadata.spec().fields))
    for position, field in enumerate(metadata.spec().fields):
        value, transform = values[position], field.transform
        if isinstance(transform, TruncateTransform) and isinstance(value, int) and value % transform.width:
            # Java's int wraps to 2**32 above the true value. A value beyond the range of int was computed as a long.
            is_long = value <= _INT_MAX and metadata.schema().find_type(field.source_id) == LongType()
            values[position] = value - 2**32 if is_long else value
    return Record(*values)


def _nested_paths(fields: Sequence[NestedField], above: Path) -> Iterator[tuple[Path, NestedField]]:
    for field in fields:
        path = (*above, field.name)
        yield path, field
        if isinstance(field.field_type, StructType):
            yield from _nested_paths(field.field_type.fields, path)


# --- the sort order that writers follow -------------------------------------------------------------------------------


def sort_order(metadata: TableMetadata, columns: Sequence[Field]) -> SortOrder | None:
    """Return the table's default sort order for rows with these columns. None if there is nothing to sort by.

    Leaves out columns that the stream does not write, because they are null in every row. Return None also if a field
    of the sort order is unsupported, because writers need not sort (Iceberg spec: Sorting).
    """
    order, paths = metadata.sort_order(), source_paths(metadata.schema())
    fields = []
    for field in order.fields:
        path = paths.get(field.source_id)
        try:
            transform = parse_transform(str(field.transform))
        except ValueError:
            return None
        if path is None:
            return None
        if is_written(path, columns) and transform != Void():
            ascending = field.direction == SortDirection.ASC
            fields.append(SortField(path, ascending, field.null_order == NullOrder.NULLS_FIRST, transform))
    return SortOrder(tuple(fields), order.order_id) if fields else None


def sort_order_id(file: DataFile, planned: SortOrder | None, metadata: TableMetadata) -> int | None:
    """Return the ID of the sort order by which the rows in a file are sorted.

    Return None if the file is unsorted, or if the table no longer has the sort order. `planned` is the sort order in
    the plan that the writer of the file followed.
    """
    if not file.is_sorted or planned is None or not planned.order_id:
        return None
    return planned.order_id if metadata.sort_order_by_id(planned.order_id) is not None else None
