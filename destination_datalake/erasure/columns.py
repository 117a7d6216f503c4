"""Map a table's column to the fields of its records, by the catalog and by the schemas of archived streams."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from destination_datalake.archive.objects import ARCHIVE_FOLDER, SCHEMA_FOLDER, table_folder
from destination_datalake.aws.objects import get, get_or_none, listed
from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import parse_catalog
from destination_datalake.schema.columns import (
    METADATA_COLUMNS,
    NO_RECORD,
    NameRecord,
    as_column,
    assign_names,
    field_at,
)
from destination_datalake.schema.evolution import redirected_from
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.types import ColumnType, Field, List, Struct, Timestamp
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.naming import TableLocation, TableNaming, TableOwner, name_record

if TYPE_CHECKING:
    from destination_datalake.erasure.place import Request
    from destination_datalake.schema.names import Naming
    from destination_datalake.tables.table import TableName


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table: from the catalog, or from the archive's description if the table was dropped.

    `present` have the names of the table, and the fields of the records as their paths. `naming` mapped the names.
    """

    present: tuple[Field, ...]
    naming: Naming
    archived: tuple[tuple[Field, ...], ...] = ()

    @classmethod
    def of(cls, table: TableName, request: Request) -> TableColumns:
        """Read the columns of a table. Raises AWS errors."""
        found = request.catalog.find(table)
        naming, record = TableNaming.of(request.config).naming, NO_RECORD
        described: Sequence[tuple[str, str, str]]
        if found is not None:
            owner, record = TableOwner.of(found.get("Parameters", {})), name_record(found.get("Parameters", {}))
            naming = naming if owner is None else owner.naming
            storage = found.get("StorageDescriptor", {}).get("Columns", [])
            described = [(each["Name"], each.get("Type", ""), each.get("Comment") or each["Name"]) for each in storage]
        else:
            saved = saved_schema(table, request)
            described = [(each["name"], each["type"], each["origin"]) for each in saved.get("columns", ())]
        own = {each.name for each in METADATA_COLUMNS}
        present = tuple(
            as_column(name, origin, parsed)
            for name, type_, origin in described
            if name not in own and (parsed := parse_glue_type(type_)) is not None
        )
        sources = {name: origin for name, _, origin in described}
        types = {each.name: each.type for each in present}
        return cls(present, naming, tuple(_archived(table, request, naming, sources, record, types)))

    def in_table(self, column: str) -> Field | None:
        """Return a column or nested field by its dotted path. The result's path is the path in a row of the table."""
        rows = [_as_keys(replace(each, source=each.name, parents=())) for each in self.present]
        found = field_at(rows, column.split("."))
        return None if found is None else replace(found, type=_scalar(found.type, column))

    def in_records(self, column: str) -> Sequence[Field]:
        """Return the fields of records that the values of a column or nested field come from."""
        path = column.split(".")
        known = field_at([*map(_as_keys, self.present)], path)
        found = [each for columns in self.archived if (each := field_at(columns, path)) is not None]
        # Nested fields can have other names in records than in the table: only archived schemas have them.
        own = [known] if known is not None and (not found or "." not in column) else []
        columns = (*own, *found)
        type_ = known.type if known is not None else columns[0].type if columns else None
        distinct = {each.path: replace(each, type=_scalar(type_, column)) for each in columns if type_ is not None}
        return list(distinct.values())


def redirected_columns(table: TableName, request: Request) -> list[str]:
    """Return the columns to which values of the request's column were redirected because of another type."""
    first, *rest = request.column.split(".")
    found = TableColumns.of(table, request).present
    return [
        ".".join((each.name, *rest))
        for each in found
        if (redirected_from(each.name) or "").lower() == first.lower()
        and not isinstance(each.type, List)
        and isinstance(each.type, Struct) == bool(rest)
    ]


def _scalar(type_: ColumnType, column: str) -> ColumnType:
    if isinstance(type_, Struct | List):
        raise ConfigError(f"--column {column}: the column has objects or lists. Name a nested field, such as user.id.")
    return type_


def _as_keys(column: Field) -> Field:
    """Return a column with nested names as keys: the catalog does not record the original keys."""
    return replace(column, type=_named(column.type))


def _named(type_: ColumnType) -> ColumnType:
    if not isinstance(type_, Struct):
        return type_
    return Struct(tuple(replace(each, source=each.name, type=_named(each.type)) for each in type_.fields))


def _archived(
    table: TableName,
    request: Request,
    naming: Naming,
    existing: Mapping[str, str],
    record: NameRecord,
    types: Mapping[str, ColumnType | None],
) -> Iterator[tuple[Field, ...]]:
    """Yield the columns of each archived stream configuration."""
    config, s3 = request.config, request.access.client("s3")
    folder = f"{table_folder(config.uri(ARCHIVE_FOLDER), *table)}/catalog"
    for uri, _ in listed(s3, folder):
        try:
            [stream] = parse_catalog({"streams": [json.loads(get(s3, uri))]})
        except ValueError as error:
            raise ConfigError(f"{uri} is not a configured stream. Restore it from a copy, or delete it.") from error
        layout = TableLayout(stream, config, TableLocation.of(config, stream.id, table, naming))
        yield assign_names(layout.columns(naming), naming, existing, record, types)


def saved_schema(table: TableName, request: Request) -> Mapping[str, Any]:
    """Return the table's description by its last archived sync; empty if there was none. Raises AWS errors."""
    uri = f"{request.config.uri(SCHEMA_FOLDER)}/{table.database}/{table.table}.json"
    saved: Mapping[str, Any] = json.loads(get_or_none(request.access.client("s3"), uri) or b"{}")
    return saved


def with_zone_of(known: Any, columns: Iterable[Field]) -> tuple[Field, ...]:
    """Return timestamp columns with the time zone of the `known` Arrow type.

    Glue has one type for timestamps with and without a zone; Iceberg has two.
    """
    if known is None or not pa.types.is_timestamp(known):
        return tuple(columns)
    return tuple(replace(column, type=Timestamp(zoned=known.tz is not None)) for column in columns)
