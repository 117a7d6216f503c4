"""`destination-datalake maintain`: run all maintenance steps on the Iceberg tables of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial

from destination_datalake import terminal
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.services import NO_LIMITS
from destination_datalake.config.tables import Retention
from destination_datalake.errors import ConfigError
from destination_datalake.files.rewrite import compact
from destination_datalake.maintenance.report import StepReport
from destination_datalake.maintenance.steps import Maintainer, archived_tables, remove_superseded
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.naming import TableFinder
from destination_datalake.tables.table import TableName
from destination_datalake.termination import EXIT_TERMINATED, Termination

_DESCRIPTION = """\
Maintain the Iceberg tables of a configuration: rewrite small files as fewer large files, expire old snapshots and
delete their files, and remove orphan files, which no snapshot references. If raw_archive.superseded is delete, also
delete archived records that a refresh has replaced. The command does not affect readers and running syncs. You can
interrupt the command and run it again without loss of data."""

_EPILOG = """\
The option maintenance determines the retention. The output contains a line for each table and step.

  destination-datalake maintain --config config.json --dry-run
  destination-datalake maintain --config config.json --stream shop.orders

The exit code is 0, 1 if the configuration is not valid or a step failed, 2 for an invalid command line, and 143 after
SIGTERM."""


def run_maintain(arguments: Sequence[str]) -> int:
    """Run the command `maintain` with the given command-line arguments. Return the exit code.

    The exit code is 0 on success, 1 if the configuration is invalid or a step failed, and 143 after SIGTERM. Raises
    SystemExit with code 2 if the command line is invalid, and with code 0 for `--help`.
    """
    with terminal.terminable() as termination:
        options = _parser().parse_args(arguments)
        return terminal.run(options, "maintain", "the tables", lambda config: _maintain(config, options, termination))


def _maintain(config: Config, options: argparse.Namespace, termination: Termination) -> int:
    if config.maintenance.mode == "glue":
        terminal.note("Note: maintenance.mode is glue, so Glue's table optimizers run the same steps about once a day.")
    if config.catalog.limits.assigns_locations:
        raise ConfigError("Amazon S3 Tables maintains the tables in a table bucket, so the command changed nothing.")
    # Do not limit the size of metadata: if a table's metadata exceeds the limit, expiring snapshots is the remedy.
    access = aws_access(config)
    catalog = catalog_of(config, access, NO_LIMITS)
    finder = TableFinder(config, catalog)
    archived = archived_tables(config, access, options.stream) if config.raw_archive.superseded == "delete" else []
    try:
        tables = finder.tables(options.stream)
    except ConfigError:
        if not archived:
            raise
        tables = []  # Hive tables: only their archive needs maintenance.
    for note in finder.notes:
        terminal.note(f"Note: {note}")
    if not tables and not archived:
        terminal.note("The command found no Iceberg tables for this configuration.")
    retention = config.maintenance if isinstance(config.maintenance, Retention) else Retention()
    failed = False
    with terminal.engine_on_demand(config) as engine:
        maintainer = Maintainer(
            retention,
            config.target_file_size_mb * 1024 * 1024,
            catalog,
            lambda tasks: engine().run(compact, tasks),
            lambda: not termination.requested,
            options.dry_run,
        )
        for table in tables:
            for report in _steps(maintainer, table):
                failed |= _write_report(report)
        for table in archived:
            remove = partial(remove_superseded, config=config, catalog=catalog, engine=engine, dry_run=options.dry_run)
            failed |= _write_report(maintainer.step(table, "archive", remove))
    if termination.requested:
        return EXIT_TERMINATED
    return 1 if failed else 0


def _write_report(report: StepReport) -> bool:
    """Print the report of a step. If the step failed, also print details to stderr. Return whether the step failed."""
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
        help="maintain only the table of this stream: namespace.name, or name without a namespace; can be repeated",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="change nothing; print the planned changes and the objects to delete"
    )
    return parser
