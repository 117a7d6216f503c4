"""From the sort order of an Iceberg table to the order of rows that writers give to files."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection

from destination_datalake.files.plan import DataFile
from destination_datalake.partitioning.spec import SortField, SortOrder, Void, parse_transform
from destination_datalake.schema.types import Field
from destination_datalake.tables.iceberg.layout.partitions import is_written, source_paths


def sort_order(metadata: TableMetadata, columns: Sequence[Field]) -> SortOrder | None:
    """Return the table's default sort order for rows of these columns; None if there is nothing to sort by.

    Columns that are not written are null in every row, so rows are in their order anyhow. None also for an order that
    this connector does not know: tables need not be sorted (Iceberg spec: Sorting).
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
    """Return the id of the sort order that a file is in, if the table has it."""
    if not file.is_sorted or planned is None or not planned.order_id:
        return None
    return planned.order_id if metadata.sort_order_by_id(planned.order_id) is not None else None
