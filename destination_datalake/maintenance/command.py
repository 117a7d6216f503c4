"""`destination-datalake maintain`: all maintenance of a configuration's Iceberg tables, now."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial

from destination_datalake import terminal
from destination_datalake.config.catalog import NO_LIMITS
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.tables import Retention
from destination_datalake.errors import ConfigError
from destination_datalake.files.compact import compact
from destination_datalake.maintenance.report import StepReport
from destination_datalake.maintenance.steps import Maintainer
from destination_datalake.maintenance.superseded import archived_tables, remove_superseded
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.finder import TableFinder
from destination_datalake.tables.table import TableName
from destination_datalake.termination import EXIT_TERMINATED, Termination

_DESCRIPTION = """\
Maintain the Iceberg tables that a configuration writes to: rewrite small files as fewer large ones, expire old
snapshots and delete the files that only they had, and remove orphans, which are files that nothing refers to. With
raw_archive.superseded: delete, remove what the archive has of rows that a refresh has replaced. Readers and running
syncs are not disturbed. It can be interrupted and run again; nothing is lost."""

_EPILOG = """\
Days and numbers are those of the option maintenance, or its defaults. There is a line for each table and step.

  destination-datalake maintain --config config.json --dry-run
  destination-datalake maintain --config config.json --stream shop.orders

The exit code is 0, 1 if the configuration is not valid or a step failed, 2 for a wrong command line, and 143 after
SIGTERM."""


def run_maintain(arguments: Sequence[str]) -> int:
    """Run the command with these arguments (without its name); return the exit code: 0, 1 or 143.

    Raises SystemExit with code 2 for a wrong command line, and with 0 for `--help`.
    """
    with terminal.terminable() as termination:
        asked = _parser().parse_args(arguments)
        return terminal.run(asked, "maintain", "the tables", lambda config: _maintain(config, asked, termination))


def _maintain(config: Config, asked: argparse.Namespace, termination: Termination) -> int:
    if config.maintenance.mode == "glue":
        terminal.note("Note: maintenance.mode is glue, so Glue's optimizers do the same about daily.")
    if config.catalog.limits.assigns_locations:
        raise ConfigError("The tables are in a table bucket, where Amazon S3 Tables maintains them. Nothing was done.")
    # To expire its snapshots is what helps a table whose metadata is too long.
    catalog = catalog_of(config, aws_access(config), NO_LIMITS)
    finder = TableFinder(config, catalog)
    archived = archived_tables(config, asked.stream) if config.raw_archive.superseded == "delete" else []
    try:
        tables = finder.tables(asked.stream)
    except ConfigError:
        if not archived:
            raise
        tables = []  # A Hive table's archive is maintained, and nothing else of it.
    for note in finder.notes:
        terminal.note(f"Note: {note}")
    if not tables and not archived:
        terminal.note("There are no Iceberg tables of this configuration.")
    options = config.maintenance if isinstance(config.maintenance, Retention) else Retention()
    failed = False
    with terminal.engine_on_demand(config) as engine:
        maintainer = Maintainer(
            options,
            config.target_file_size_mb * 1024 * 1024,
            catalog,
            lambda tasks: engine().run(compact, tasks),
            lambda: not termination.requested,
            asked.dry_run,
        )
        for table in tables:
            for report in _steps(maintainer, table):
                failed |= _told(report)
        for table in archived:
            remove = partial(remove_superseded, config=config, catalog=catalog, engine=engine, dry_run=asked.dry_run)
            failed |= _told(maintainer.step(table, "archive", remove))
    if termination.requested:
        return EXIT_TERMINATED
    return 1 if failed else 0


def _told(report: StepReport) -> bool:
    """Write a report; return whether the step has failed."""
    if report.failure is not None:
        terminal.note(report.failure.detail)
    for line in report.lines():
        terminal.write(line)
    return report.failure is not None


def _steps(maintainer: Maintainer, table: TableName) -> Iterator[StepReport]:
    yield maintainer.compact(table)
    yield from maintainer.remove(table)


def _parser() -> argparse.ArgumentParser:
    parser = terminal.parser("maintain", _DESCRIPTION, _EPILOG)
    parser.add_argument(
        "--stream",
        metavar="NAME",
        action="append",
        default=[],
        help="a stream as namespace.name, or as name if it has no namespace: only its table is maintained; may be "
        "repeated",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="change nothing; print what would be done, and each object to be deleted"
    )
    return parser
