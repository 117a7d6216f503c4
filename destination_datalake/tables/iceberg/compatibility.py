"""Which Iceberg tables of others can be written so that every engine reads them right."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, StructType

_NEWEST_FORMAT = 2


def obstacle(metadata: TableMetadata) -> str | None:
    """Why the table cannot be written to, as the end of a sentence and with the remedy in one of its own; or None."""
    if metadata.format_version > _NEWEST_FORMAT:
        return (
            f"its format-version is {metadata.format_version}, and this connector writes versions 1 and 2. "
            "Copy it to a table with the property format-version 2"
        )
    if fields := metadata.spec().fields:
        by = ", ".join(_described(field, metadata.schema()) for field in fields)
        return (
            f"it is partitioned by {by}, and this connector does not write partitions of Iceberg tables. "
            "Remove the partition fields (ALTER TABLE ... DROP PARTITION FIELD ...)"
        )
    if alike := _alike(metadata.schema().as_struct(), ""):
        return (
            f"its columns {' and '.join(alike)} differ only in upper and lower case, so Glue, Athena and Spark cannot "
            "tell them apart. Rename one of them (ALTER TABLE ... RENAME COLUMN ... TO ...)"
        )
    return None


def _described(field: PartitionField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id) or "a column that was dropped"
    return f"{field.transform}({column})"


def _alike(type_: IcebergType, above: str) -> tuple[str, str] | None:
    """Return the paths of two fields side by side whose names differ only in case, at any depth."""
    fields = _inside(type_)
    spelled: dict[str, str] = {}
    for name, _ in fields:
        if (other := spelled.setdefault(name.lower(), name)) != name:
            return f"{above}{other}", f"{above}{name}"
    return next((found for name, inner in fields if (found := _alike(inner, f"{above}{name}."))), None)


def _inside(type_: IcebergType) -> list[tuple[str, IcebergType]]:
    match type_:
        case StructType(fields=fields):
            return [(field.name, field.field_type) for field in fields]
        case ListType():
            return [("element", type_.element_type)]
        case MapType():
            return [("key", type_.key_type), ("value", type_.value_type)]
    return []
