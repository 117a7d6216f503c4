"""Opens tables, of the kind that the options ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.archive.objects import ARCHIVE_FOLDER
from destination_datalake.files.plan import FilePlan
from destination_datalake.schema.columns import WHOLE_RECORD, has_whole_record
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.location import TableLocation
from destination_datalake.tables.migration import refuse_second_table
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.reconcile import ColumnLimits
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.context import TableContext
    from destination_datalake.tables.rebuild import Rebuild
    from destination_datalake.tables.table import Table


_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replay:
    """What a table is that is made from the archive of table `of`: with `in_place`, its files lie in that one's folder,
    which then takes them over.
    """

    of: TableName
    in_place: bool = False


def open_table(
    stream: Stream, name: TableName, config: Config, context: TableContext, replay: Replay | None = None
) -> Table:
    """Return the stream's table, which still has to be prepared.

    Raises TableConflict if the stream has more columns than the options or the catalog allow, or if it would leave an
    inherited table behind.
    """
    if replay is None:
        refuse_second_table(stream.id, name, config, context.catalog)
    naming = TableNaming.of(config).naming
    at = replay.of if replay is not None and replay.in_place else name
    layout = TableLayout(stream, config, TableLocation.of(config, stream.id, at, naming))
    columns = layout.columns(naming)
    if has_whole_record(columns):
        _logger.warning(
            "The schema of stream %s declares no properties. Each record is kept whole, as JSON text in the column %s. "
            "Refresh the source's schema for a column for each field.",
            stream.id,
            WHOLE_RECORD.name,
        )
    own = {column.name: column.type for column in columns}
    ColumnLimits.of(config, stream.id).require(stream.id, name, {}, own)
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
    owner = TableOwner(stream.id, naming, None if replay is None else str(replay.of))
    # Each kind is imported only if it is asked for: PyIceberg takes a second.
    if config.table_type == "ICEBERG":
        from destination_datalake.tables.iceberg.table import IcebergTable

        return IcebergTable(name, layout, plan, owner, context)
    from destination_datalake.tables.hive.table import HiveTable

    return HiveTable(name, layout, plan, owner, context)


def rebuild_of(config: Config, name: TableName, catalog: TableCatalog, open_to_append: Callable[[], Table]) -> Rebuild:
    """Return what a table of the options' kind can do. `open_to_append` opens it as for a sync that appends."""
    # Each kind is imported only if it is asked for: PyIceberg takes a second.
    if config.table_type == "ICEBERG":
        from destination_datalake.tables.iceberg.rebuild import IcebergRebuild

        scratch = config.uri(ARCHIVE_FOLDER, f"{name}", "replay", "metadata")
        return IcebergRebuild(name, catalog, scratch)
    from destination_datalake.tables.hive.rebuild import HiveRebuild
    from destination_datalake.tables.hive.table import HiveTable

    def open_hive_table() -> HiveTable:
        table = open_to_append()
        assert isinstance(table, HiveTable)
        return table

    return HiveRebuild(name, open_hive_table, catalog.access_of(name))
