"""Deletion of archived rows that a refresh has replaced (`raw_archive.superseded: delete`).

Two independent readers must agree: the archive's index assigns the lines to batches before the refresh, and the table's
files contain no row of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap

from destination_datalake.archive.history import History, StoredLines, read_history
from destination_datalake.archive.objects import ARCHIVE_FOLDER, table_folder
from destination_datalake.archive.plan import build_plan, unindexed_units
from destination_datalake.aws.objects import delete, folders_in
from destination_datalake.config.options import Config, aws_access
from destination_datalake.errors import counted
from destination_datalake.files.jobs import results_or_raise
from destination_datalake.files.scan import find_by_row_id, merge_row_ids, row_id_tasks
from destination_datalake.maintenance.report import StepReport, megabytes
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.factory import rebuild_of
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog

_SEARCHES = 8
"""The number of tasks that search for rows."""


def remove_superseded(
    table: TableName, config: Config, catalog: TableCatalog, engine: Callable[[], Engine], *, dry_run: bool
) -> StepReport:
    """Delete archived rows of a table that refreshes have replaced, or report them in a dry run.

    Raises AWS errors and errors of the catalog.
    """
    entry = catalog.find(table)
    if entry is not None and is_iceberg(entry) != (config.table_type == "ICEBERG"):
        return StepReport(table, "archive", f"skipped: table_type is {config.table_type}, the table's is not")
    access = aws_access(config)
    folder = table_folder(config.uri(ARCHIVE_FOLDER), *table)
    history = read_history(folder, access)
    state = rebuild_of(config, table, catalog, _open_nothing).state(table)
    if state is None:
        return StepReport(table, "archive", "skipped: the table does not exist")

    def rows_of(units: frozenset[str]) -> Mapping[str, BitMap]:
        if not units or not state.written:
            return {}
        tasks = row_id_tasks(state.written, units, _SEARCHES, catalog.access_of(table))
        return merge_row_ids(results_or_raise(engine().run(find_by_row_id, tasks)), units).lines

    replaced = build_plan(history, state, rows_of(unindexed_units(history))).replaced
    superseded = _lines(history, replaced)
    if present := rows_of(frozenset(lines.unit for lines in superseded)):
        return StepReport(
            table,
            "archive",
            f"skipped: the table has rows of {counted(len(present), 'object')} that a refresh has replaced according "
            "to the archive's index",
        )
    entries = [
        f"{folder}/index/{sync.sync.started:013d}-{sync.sync.sync}/{number:06d}.json"
        for sync in history.syncs
        for number in replaced.get(sync.sync.sync, ())
        if number in sync.batches
    ]
    if not dry_run:
        s3 = access.client("s3")
        # Lines first: the next run deletes an entry without lines, but cannot judge lines without an entry.
        for uri in (*(lines.uri for lines in superseded), *entries):
            delete(s3, uri)
    size = sum(lines.size for lines in superseded)
    verb = "would delete" if dry_run else "deleted"
    text = f"{verb} {counted(len(superseded), 'object')} ({megabytes(size)}) of rows that a refresh has replaced"
    figures = {"files": len(superseded), "bytes": size}
    return StepReport(
        table,
        "archive",
        text if superseded else "nothing is superseded",
        figures,
        (),
        [lines.uri for lines in superseded],
    )


def archived_tables(config: Config, streams: Sequence[str]) -> list[TableName]:
    """Return the tables with an archive, of all streams or of these ("name" or "namespace.name")."""
    folders = folders_in(aws_access(config).client("s3"), config.uri(ARCHIVE_FOLDER))
    tables = [TableName(*folder.split(".", 1)) for folder in folders]
    if not streams:
        return tables
    naming = TableNaming.of(config)
    return [name for name in tables if any(name in naming.candidates(stream) for stream in streams)]


def _lines(history: History, batches: Mapping[str, Sequence[int]]) -> list[StoredLines]:
    lines: list[StoredLines] = []
    for sync in history.syncs:
        for number in batches.get(sync.sync.sync, ()):
            lines += sync.batches[number].lines if number in sync.batches else ()
            lines += sync.unindexed.get(number, ())
    return lines


def _open_nothing() -> Any:
    raise AssertionError("the table is not opened for writes")
