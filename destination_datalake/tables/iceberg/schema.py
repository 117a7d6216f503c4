"""An Iceberg table's columns in our terms, and our changes of them in Iceberg's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata

from destination_datalake.schema.evolution import AddColumn, SchemaChange, Widen
from destination_datalake.schema.iceberg import from_iceberg, iceberg_field, iceberg_type
from destination_datalake.schema.types import ColumnType


def columns_of(metadata: TableMetadata) -> dict[str, ColumnType | None]:
    """The columns of a table by name; None is a type that this connector never writes."""
    return {field.name: from_iceberg(field.field_type) for field in metadata.schema().fields}


def apply(transaction: Transaction, changes: Sequence[SchemaChange]) -> None:
    """Put changes into a transaction. What they do not name stays: ids, comments, what is required."""
    if not changes:
        return
    new_ids = itertools.count(1_000_000)  # PyIceberg assigns the real ones.
    with transaction.update_schema() as update:
        for change in changes:
            match change:
                case AddColumn(path=path, field=field):
                    new = iceberg_field(field, lambda: next(new_ids))
                    update.add_column(path, new.field_type, doc=new.doc)
                case Widen(path=path, type=type_):
                    update.update_column(path, field_type=iceberg_type(type_, lambda: next(new_ids)))
