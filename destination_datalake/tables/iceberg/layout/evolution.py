"""The options' partitions and sort order: in a new table, and in an existing one when the options have changed.

What the options meant when they were last applied is recorded in the table's properties. Only a difference from that is
applied: a partition spec or sort order that another engine has set since is kept.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.partitioning import PartitionField as IcebergField
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortOrder
from pyiceberg.table.sorting import SortField as IcebergSortField
from pyiceberg.table.update import SetDefaultSortOrderUpdate, UpdatesAndRequirements
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import Transform, VoidTransform, parse_transform

from destination_datalake.partitioning.spec import PartitionField, Since1970, SortField
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.iceberg.layout.partitions import source_paths
from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

PARTITIONS_PROPERTY = "airbyte.partition-by"
SORT_ORDER_PROPERTY = "airbyte.sort-by"

_UNITS = ("year", "month", "day", "hour")


@dataclass(frozen=True, slots=True)
class WantedLayout:
    """The partition fields and the sort order that the options mean for a stream. None leaves them to the table."""

    stream: StreamId
    partition_by: tuple[PartitionField, ...] | None
    sort_by: tuple[SortField, ...] | None

    def properties(self) -> dict[str, str]:
        """Return the table properties that record them."""
        texts = {PARTITIONS_PROPERTY: self._partitions_text(), SORT_ORDER_PROPERTY: self._sort_order_text()}
        return {name: text for name, text in texts.items() if text is not None}

    def new_spec(self, schema: Schema) -> PartitionSpec:
        """Return the partition spec of a new table."""
        return PartitionSpec(*_fields(self._sources(schema), {}, schema, PARTITION_FIELD_ID_START, frozenset()))

    def new_sort_order(self, schema: Schema) -> SortOrder:
        """Return the sort order of a new table."""
        return self._sort_order(schema) or UNSORTED_SORT_ORDER

    def apply(self, transaction: Transaction) -> None:
        """Evolve the table's spec and sort order if the options have changed, and record that."""
        metadata = transaction.table_metadata
        changed = {name: text for name, text in self.properties().items() if metadata.properties.get(name) != text}
        if PARTITIONS_PROPERTY in changed:
            fields = self._evolved(metadata)
            if fields != metadata.spec().fields:
                _SetSpec(transaction, fields).commit()
        if SORT_ORDER_PROPERTY in changed:
            order = self._sort_order(metadata.schema()) or UNSORTED_SORT_ORDER
            if order.fields != metadata.sort_order().fields:
                _SetSortOrder(transaction, order.fields).commit()
        if changed:
            transaction.set_properties(changed)

    def warn_of_difference(self, metadata: TableMetadata, table: TableName) -> None:
        """Log a warning if the table is arranged otherwise: it is another's, which keeps its spec and sort order."""
        differs = []
        if self.partition_by is not None:
            present = {(field.source_id, str(field.transform)) for field in metadata.spec().fields}
            if {(id_, str(field.transform)) for id_, field in self._sources(metadata.schema())} != present:
                differs.append("partitioned")
        if self.sort_by is not None:
            order = self._sort_order(metadata.schema()) or UNSORTED_SORT_ORDER
            if order.fields != metadata.sort_order().fields:
                differs.append("sorted")
        if differs:
            _logger.warning(
                "Table %s is not %s as the options say: it was not created for stream %s by this connector, so it "
                "stays as it is. To change it, use ALTER TABLE.",
                table,
                " and ".join(differs),
                self.stream,
            )

    def _evolved(self, metadata: TableMetadata) -> tuple[IcebergField, ...]:
        schema, specs = metadata.schema(), metadata.specs().values()
        present = metadata.spec().fields
        known = [field for spec in specs for field in spec.fields if not isinstance(field.transform, VoidTransform)]
        if metadata.format_version == 1:
            # Each spec of such a table begins with the fields of the last (Iceberg spec: Partition Evolution).
            ids = {field.field_id: field.source_id for field in present}
            known = [field for field in known if ids.get(field.field_id) == field.source_id]
        ids_of = {(field.source_id, field.transform): field.field_id for field in known}
        names = frozenset((field.name, field.field_id) for spec in specs for field in spec.fields)
        next_id = max(metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1) + 1
        fields = _fields(self._sources(schema), ids_of, schema, next_id, names)
        if metadata.format_version > 1:
            return fields
        kept = {field.field_id: field for field in fields}
        former = tuple(
            kept.pop(field.field_id, IcebergField(field.source_id, field.field_id, VoidTransform(), field.name))
            for field in present
        )
        return (*former, *kept.values())

    def _sources(self, schema: Schema) -> list[tuple[int, PartitionField]]:
        """Return the wanted fields with the ids of their source columns; of several units of time only the finest."""
        ids = {path: id_ for id_, path in source_paths(schema).items()}
        found = [(ids[field.source], field) for field in self.partition_by or ()]
        finest: dict[int, int] = {}
        for id_, field in found:
            if isinstance(field.transform, Since1970):
                finest[id_] = max(finest.get(id_, 0), _UNITS.index(field.transform.unit))
        distinct: dict[tuple[int, str], tuple[int, PartitionField]] = {}
        for id_, field in found:
            if not isinstance(field.transform, Since1970) or field.transform.unit == _UNITS[finest[id_]]:
                distinct.setdefault((id_, str(field.transform)), (id_, field))
        return list(distinct.values())

    def _sort_order(self, schema: Schema) -> SortOrder | None:
        ids = {path: id_ for id_, path in source_paths(schema).items()}
        fields = []
        for field in self.sort_by or ():
            transform = parse_transform(str(field.transform))
            direction = SortDirection.ASC if field.ascending else SortDirection.DESC
            nulls = NullOrder.NULLS_FIRST if field.nulls_first else NullOrder.NULLS_LAST
            fields.append(IcebergSortField(ids[field.source], transform, direction, nulls))
        return SortOrder(*fields) if fields else None

    def _partitions_text(self) -> str | None:
        if self.partition_by is None:
            return None
        return _canonical([[field.name, list(field.source), str(field.transform)] for field in self.partition_by])

    def _sort_order_text(self) -> str | None:
        if self.sort_by is None:
            return None
        return _canonical(
            [[list(field.source), str(field.transform), field.ascending, field.nulls_first] for field in self.sort_by]
        )


def _canonical(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fields(
    sources: Sequence[tuple[int, PartitionField]],
    ids: Mapping[tuple[int, Transform[Any, Any]], int],
    schema: Schema,
    next_id: int,
    names: frozenset[tuple[str, int]],
) -> tuple[IcebergField, ...]:
    """Return fields with the ids of `ids`, or new ones, and with names that no other field of any spec has.

    `names` are names and ids of the fields of all specs so far.
    """
    new_ids = itertools.count(next_id)
    columns = {name.lower(): id_ for name, id_ in index_by_name(schema).items()}
    taken = {(name.lower(), id_) for name, id_ in names}
    fields = []
    for source_id, field in sources:
        transform = parse_transform(str(field.transform))
        id_ = ids.get((source_id, transform))
        id_ = next(new_ids) if id_ is None else id_
        name, own = field.name, source_id if str(transform) == "identity" else None
        while columns.get(name.lower(), own) != own or any(name.lower() == each and id_ != of for each, of in taken):
            name = f"{name}_{id_}"
        taken.add((name.lower(), id_))
        fields.append(IcebergField(source_id, id_, transform, name))
    return tuple(fields)


class _SetSpec(UpdateSpec):
    """Makes a spec with these fields the default, an existing one if there is one.

    PyIceberg's own operations cannot replace a field by one of the same name.
    """

    def __init__(self, transaction: Transaction, fields: tuple[IcebergField, ...]) -> None:
        super().__init__(transaction)
        self._fields = fields

    def _apply(self) -> PartitionSpec:
        specs = self._transaction.table_metadata.specs()
        same = next((spec for spec in specs.values() if spec.fields == self._fields), None)
        return same or PartitionSpec.model_validate({"spec-id": max(specs) + 1, "fields": self._fields})


class _SetSortOrder(UpdateSortOrder):
    """Makes a sort order with these fields the default, an existing one if there is one.

    PyIceberg's own operations cannot take the order of a table that was created with one.
    """

    def __init__(self, transaction: Transaction, fields: Sequence[IcebergSortField]) -> None:
        super().__init__(transaction)
        self._fields = list(fields)

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        default = SetDefaultSortOrderUpdate.model_validate({"sort-order-id": self._apply().order_id})
        return (*updates[:-1], default), requirements
