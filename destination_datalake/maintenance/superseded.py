"""Deletes the archive of rows that a refresh has replaced (`raw_archive.superseded: delete`).

Two readers decide, which share no code: by the archive's index the lines are of batches from before the refresh, and by
the table's files it has no row of them.
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
from destination_datalake.files.find import find, find_tasks, total
from destination_datalake.files.jobs import done
from destination_datalake.maintenance.report import StepReport, megabytes
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.factory import rebuild_of
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog

_SEARCHES = 8
"""Tasks that look for rows: small work, on as many executors as there are."""


def remove_superseded(
    table: TableName, config: Config, catalog: TableCatalog, engine: Callable[[], Engine], *, dry_run: bool
) -> StepReport:
    """Remove what refreshes have replaced from the archive of a table, or say what would be removed.

    Raises what AWS raises, and the errors of catalogs.
    """
    entry = catalog.find(table)
    if entry is not None and is_iceberg(entry) != (config.table_type == "ICEBERG"):
        return StepReport(table, "archive", f"is left alone: it is no {config.table_type} table, as table_type says")
    access = aws_access(config)
    folder = table_folder(config.uri(ARCHIVE_FOLDER), *table)
    history = read_history(folder, access)
    state = rebuild_of(config, table, catalog, _unopened).state(table)
    if state is None:
        return StepReport(table, "archive", "is left alone: there is no such table")

    def rows_of(units: frozenset[str]) -> Mapping[str, BitMap]:
        if not units or not state.written:
            return {}
        tasks = find_tasks(state.written, units, _SEARCHES, catalog.access_of(table))
        return total(done(engine().run(find, tasks)), units).lines

    replaced = build_plan(history, state, rows_of(unindexed_units(history))).replaced
    doomed = _lines(history, replaced)
    if present := rows_of(frozenset(lines.unit for lines in doomed)):
        return StepReport(
            table,
            "archive",
            f"is left alone: by its index a refresh has replaced {counted(len(present), 'object')}, and the "
            "table has rows of them",
        )
    entries = [
        f"{folder}/index/{sync.sync.started:013d}-{sync.sync.sync}/{number:06d}.json"
        for sync in history.syncs
        for number in replaced.get(sync.sync.sync, ())
        if number in sync.batches
    ]
    if not dry_run:
        s3 = access.client("s3")
        # An entry without lines says the same again to the next run; lines without an entry would be doubtful.
        for uri in (*(lines.uri for lines in doomed), *entries):
            delete(s3, uri)
    size = sum(lines.size for lines in doomed)
    did = "would delete" if dry_run else "deleted"
    text = f"{did} {counted(len(doomed), 'object')} ({megabytes(size)}) of rows that a refresh has replaced"
    figures = {"files": len(doomed), "bytes": size}
    return StepReport(
        table, "archive", text if doomed else "nothing is superseded", figures, (), [each.uri for each in doomed]
    )


def archived_tables(config: Config, streams: Sequence[str]) -> list[TableName]:
    """Return the tables that have an archive: of these streams, each "name" or "namespace.name", or all."""
    folders = folders_in(aws_access(config).client("s3"), config.uri(ARCHIVE_FOLDER))
    found = [TableName(*folder.split(".", 1)) for folder in folders]
    if not streams:
        return found
    naming = TableNaming.of(config)
    return [name for name in found if any(name in naming.candidates(stream) for stream in streams)]


def _lines(history: History, batches: Mapping[str, Sequence[int]]) -> list[StoredLines]:
    found: list[StoredLines] = []
    for sync in history.syncs:
        for number in batches.get(sync.sync.sync, ()):
            found += sync.batches[number].lines if number in sync.batches else ()
            found += sync.unindexed.get(number, ())
    return found


def _unopened() -> Any:
    raise AssertionError("a table is not written to")
