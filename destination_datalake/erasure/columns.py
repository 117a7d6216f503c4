"""Find the fields of records that supply a table's column, from the catalog and archived stream configurations."""

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
    NO_RECORD,
    NameRecord,
    as_column,
    assign_names,
    field_at,
)
from destination_datalake.schema.evolution import redirected_from
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.names import METADATA_NAMES
from destination_datalake.schema.types import ColumnType, Field, List, Struct, Timestamp
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.naming import TableLocation, TableNaming, TableOwner, name_record

if TYPE_CHECKING:
    from destination_datalake.erasure.model import Request
    from destination_datalake.schema.names import Naming
    from destination_datalake.tables.table import TableName


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table, from the catalog or, for a dropped table, from the table's description in `_schema/`.

    `present` contains the table's columns, each with the path of its field in a record. `archived` contains the columns
    according to each archived stream configuration. `naming` converts the names of fields to the names of columns.
    """

    present: tuple[Field, ...]
    naming: Naming
    archived: tuple[tuple[Field, ...], ...] = ()

    @property
    def are_known(self) -> bool:
        """Return whether the catalog or the archive describes any column."""
        return bool(self.present or self.archived)

    @classmethod
    def load(cls, table: TableName, request: Request) -> TableColumns:
        """Read the columns of a table from the catalog and the archive.

        Raises AWS errors, and ConfigError if an archived stream configuration is not valid.
        """
        entry = request.catalog.find(table)
        naming, record = TableNaming.from_config(request.config).naming, NO_RECORD
        described: Sequence[tuple[str, str, str]]
        if entry is not None:
            owner, record = TableOwner.load(entry.get("Parameters", {})), name_record(entry.get("Parameters", {}))
            naming = naming if owner is None else owner.naming
            storage = entry.get("StorageDescriptor", {}).get("Columns", [])
            described = [
                (column["Name"], column.get("Type", ""), column.get("Comment") or column["Name"]) for column in storage
            ]
        else:
            schema = saved_schema(table, request)
            described = [(column["name"], column["type"], column["origin"]) for column in schema.get("columns", ())]
        present = tuple(
            as_column(name, origin, parsed)
            for name, type_, origin in described
            if name not in METADATA_NAMES and (parsed := parse_glue_type(type_)) is not None
        )
        sources = {name: origin for name, _, origin in described}
        types = {column.name: column.type for column in present}
        return cls(present, naming, tuple(_archived(table, request, naming, sources, record, types)))

    def in_table(self, column: str) -> Field | None:
        """Return the column or nested field at a dotted path, or None if the table does not contain it.

        The returned field has its path in a row of the table, not in a record. Raises ConfigError if the field contains
        objects or lists.
        """
        rows = [_as_keys(replace(column, source=column.name, parents=())) for column in self.present]
        field = field_at(rows, column.split("."))
        return None if field is None else replace(field, type=_scalar(field.type, column))

    def in_records(self, column: str) -> Sequence[Field]:
        """Return the fields of records that supply the values of a column or nested field, now or in earlier syncs.

        Returns an empty sequence if there are no such fields. Raises ConfigError if the column contains objects or
        lists.
        """
        path = column.split(".")
        present = field_at([*map(_as_keys, self.present)], path)
        archived = [field for columns in self.archived if (field := field_at(columns, path)) is not None]
        # The names of nested fields in records can differ from those in the table. Only archived configurations contain
        # the names in records.
        fields = [present, *archived] if present is not None and (not archived or "." not in column) else archived
        type_ = present.type if present is not None else fields[0].type if fields else None
        distinct = {field.path: replace(field, type=_scalar(type_, column)) for field in fields if type_ is not None}
        return list(distinct.values())


def redirected_columns(table: TableName, request: Request) -> list[str]:
    """Return the columns to which syncs redirected values of the request's column, because of the type of the values.

    If the request's column is a nested field, returns the dotted paths of the corresponding nested fields. Raises AWS
    errors.
    """
    first, *nested = request.column.split(".")
    columns = TableColumns.load(table, request).present
    return [
        ".".join((column.name, *nested))
        for column in columns
        if (redirected_from(column.name) or "").lower() == first.lower()
        and not isinstance(column.type, List)
        and isinstance(column.type, Struct) == bool(nested)
    ]


def _scalar(type_: ColumnType, column: str) -> ColumnType:
    if isinstance(type_, Struct | List):
        raise ConfigError(
            f"--column {column}: this column contains objects or lists. Name a nested field, such as user.id."
        )
    return type_


def _as_keys(column: Field) -> Field:
    """Return a column in which the key of each nested field is the field's name in the table.

    The catalog contains only these names, and not the source's original keys.
    """
    return replace(column, type=_names_as_keys(column.type))


def _names_as_keys(type_: ColumnType) -> ColumnType:
    if not isinstance(type_, Struct):
        return type_
    return Struct(tuple(replace(field, source=field.name, type=_names_as_keys(field.type)) for field in type_.fields))


def _archived(
    table: TableName,
    request: Request,
    naming: Naming,
    existing: Mapping[str, str],
    record: NameRecord,
    types: Mapping[str, ColumnType | None],
) -> Iterator[tuple[Field, ...]]:
    """Yield the table's columns according to each stream configuration in the archive.

    `existing` maps the names of existing columns to their original names, and `types` maps them to their types. Raises
    AWS errors, and ConfigError if a configuration is invalid.
    """
    config, s3 = request.config, request.access.client("s3")
    folder = f"{table_folder(config.uri(ARCHIVE_FOLDER), *table)}/catalog"
    for uri, _ in listed(s3, folder):
        try:
            [stream] = parse_catalog({"streams": [json.loads(get(s3, uri))]})
        except ValueError as error:
            raise ConfigError(
                f"{uri} is not a valid stream configuration. Restore this object from a copy, or delete it."
            ) from error
        layout = TableLayout(stream, config, TableLocation.for_stream(config, stream.id, table, naming))
        yield assign_names(layout.columns(naming), naming, existing, record, types)


def saved_schema(table: TableName, request: Request) -> Mapping[str, Any]:
    """Return the table's description in `_schema/`, which the last archived sync wrote. Raises AWS errors.

    Returns an empty mapping if the description does not exist.
    """
    uri = f"{request.config.uri(SCHEMA_FOLDER)}/{table.database}/{table.table}.json"
    schema: Mapping[str, Any] = json.loads(get_or_none(request.access.client("s3"), uri) or b"{}")
    return schema


def with_zone_of(arrow_type: Any, columns: Iterable[Field]) -> tuple[Field, ...]:
    """Return the columns as timestamps, with a time zone if the timestamp type `arrow_type` has one.

    If `arrow_type` is not a timestamp type, returns the columns unchanged. Glue has a single timestamp type, while
    Iceberg has one with and one without a time zone. Columns from Glue therefore lack the zone.
    """
    if arrow_type is None or not pa.types.is_timestamp(arrow_type):
        return tuple(columns)
    return tuple(replace(column, type=Timestamp(zoned=arrow_type.tz is not None)) for column in columns)
