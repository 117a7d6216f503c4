"""Open tables of the configured table type, for syncs and for rebuilds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from destination_datalake.errors import quoted
from destination_datalake.files.plan import FilePlan
from destination_datalake.schema.columns import WHOLE_RECORD, assign_names, has_whole_record
from destination_datalake.schema.types import String
from destination_datalake.tables.glue.glue_table import column_sources, column_types
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.migration import refuse_second_table
from destination_datalake.tables.naming import TableLocation, TableNaming, TableOwner, name_record
from destination_datalake.tables.reconcile import MAX_TYPE_BYTES, ColumnLimits
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.schema.names import Naming
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.context import TableContext
    from destination_datalake.tables.table import Rebuild, Table


_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay writes the archived records of the table `source` to another table.

    If `in_place` is True, the other table stores its files in the folder of the table `source`. After the replay,
    `source` takes over these files.
    """

    source: TableName
    in_place: bool = False


def open_table(
    stream: Stream, name: TableName, config: Config, context: TableContext, replay: Replay | None = None
) -> Table:
    """Return the stream's table. The caller must call the table's method `prepare` before any other.

    Raises TableConflict if the stream has more columns than the options or the catalog allow. Also raises TableConflict
    if another connector already created a table for the stream, and the options would create a second one.
    """
    if replay is None:
        refuse_second_table(stream.id, name, config, context.catalog)
    naming = TableNaming.from_config(config).naming
    # A rebuilt table writes to the folder of the table that will take over its files.
    located = replay.source if replay is not None and replay.in_place else name
    limits = ColumnLimits.for_stream(config, stream.id)
    layout = TableLayout(stream, config, TableLocation.for_stream(config, stream.id, located, naming))
    layout = _with_short_types(layout, naming, limits, name, context.catalog)
    columns = layout.columns(naming)
    if has_whole_record(columns):
        _logger.warning(
            "The schema of stream %s declares no properties, so each record is written as JSON text to the column %s. "
            "To get a column for each field, refresh the source's schema.",
            stream.id,
            WHOLE_RECORD.name,
        )
    limits.require(stream.id, name, {}, {column.name: column.type for column in columns})
    plan = FilePlan(
        format="jsonl" if config.format.format_type == "JSONL" else "parquet",
        codec=config.format.compression_codec,
        columns=columns,
        field_ids={},
        folder="",
        deferred=False,
        target_bytes=config.target_file_size_mb * 1024 * 1024,
        generation=stream.generation,
        sync_id=stream.sync_id,
    )
    owner = TableOwner(stream.id, naming, None if replay is None else str(replay.source))
    # Import only the configured table type, because importing PyIceberg takes a second.
    if config.table_type == "ICEBERG":
        from destination_datalake.tables.iceberg.table import IcebergTable

        return IcebergTable(name, layout, plan, owner, context)
    from destination_datalake.tables.hive.table import HiveTable

    return HiveTable(name, layout, plan, owner, context)


def _with_short_types(
    layout: TableLayout, naming: Naming, limits: ColumnLimits, name: TableName, catalog: TableCatalog
) -> TableLayout:
    """Return the layout. Each new column whose type name is longer than the catalog allows becomes JSON text.

    An existing struct column stays a struct: if the layout changed the type to JSON text, the column would receive no
    more values.
    """
    columns = layout.columns(naming)
    too_long = [column for column in columns if limits.is_too_long(column.type)]
    if not too_long:
        return layout
    glue_table: Mapping[str, Any] = catalog.find(name) or {}
    entry = {"StorageDescriptor": {"Columns": glue_table.get("StorageDescriptor", {}).get("Columns", [])}}
    types = {column.lower(): type_ for column, type_ in column_types(entry).items()}
    names = name_record(glue_table.get("Parameters", {}))
    named = assign_names(columns, naming, column_sources(entry), names, types)
    is_new = {column.path: types.get(column.name, String()) == String() for column in named}
    new = [column for column in too_long if is_new[column.path]]
    for column in new:
        _logger.warning(
            "Stream %s: the type of field %s exceeds the limit of %s bytes in the Glue Data Catalog, so the field is "
            "stored as JSON text.",
            layout.stream.id,
            quoted(".".join(column.path)),
            f"{MAX_TYPE_BYTES:,}",
        )
    return replace(layout, as_json=frozenset(column.path for column in new))


def rebuild_of(
    config: Config,
    name: TableName,
    catalog: TableCatalog,
    scratch: str,
    open_to_append: Callable[[], Table] | None = None,
) -> Rebuild:
    """Return an object that rebuilds a table of the configured table type.

    `scratch` is a folder for temporary metadata: an S3 URI without a trailing slash. `open_to_append` opens the table
    for an append. Only the replacement of a Hive table needs this function.
    """
    # Import only the configured table type, because importing PyIceberg takes a second.
    if config.table_type == "ICEBERG":
        from destination_datalake.tables.iceberg.rebuild import IcebergRebuild

        return IcebergRebuild(name, catalog, scratch)
    from destination_datalake.tables.hive.rebuild import HiveRebuild
    from destination_datalake.tables.hive.table import HiveTable

    def open_hive_table() -> HiveTable:
        assert open_to_append is not None
        table = open_to_append()
        assert isinstance(table, HiveTable)
        return table

    return HiveRebuild(name, open_hive_table, catalog.access_of(name))
