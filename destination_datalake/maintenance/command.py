"""`destination-datalake maintain`: all maintenance of a configuration's Iceberg tables, now.

They are found in the catalog, by the stream that each was created for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from destination_datalake import terminal
from destination_datalake.aws.errors import explain
from destination_datalake.config.catalog import NO_LIMITS
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.tables import Retention
from destination_datalake.errors import ConfigError
from destination_datalake.files.compact import compact
from destination_datalake.maintenance.report import StepReport
from destination_datalake.maintenance.steps import Maintainer
from destination_datalake.maintenance.superseded import archived_tables, remove_superseded
from destination_datalake.tables.catalog import ListedTable, is_iceberg
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.location import is_inside
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.table import TableName
from destination_datalake.termination import EXIT_TERMINATED, Termination

if TYPE_CHECKING:
    from destination_datalake.tables.catalog import TableCatalog

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


@dataclass(slots=True)
class TableFinder:
    """Finds Iceberg tables, or all. `notes` says, in sentences, what was not looked at or left out."""

    config: Config
    catalog: TableCatalog
    notes: list[str] = field(default_factory=list)
    with_hive: bool = False

    def tables(self, streams: Sequence[str]) -> list[TableName]:
        """Return the tables of these streams, each "name" or "namespace.name"; without streams, all tables.

        A table is the configuration's if it was created for a stream that this configuration writes to it, and is where
        its options put tables. All tables are those in lakeformation_database_name and, if database_strategy is
        namespace, in the databases that this connector has created. Raises ConfigError for a stream without such a
        table, and what the catalog raises.
        """
        if not streams:
            return sorted(name for name, _ in self._ours(self._in_databases()))
        kind = "table" if self.with_hive else "Iceberg table"
        found: set[TableName] = set()
        for stream in dict.fromkeys(streams):
            ours = [name for name, owner in self._ours(self._of_stream(stream)) if str(owner.stream) == stream]
            if not ours:
                raise ConfigError(
                    f"--stream {stream}: no {kind} of this configuration was created for that stream. Name it "
                    f"as namespace.name, or as name if it has no namespace.{''.join(f' {note}' for note in self.notes)}"
                )
            found.update(ours)
        return sorted(found)

    def _ours(self, listed: Iterable[ListedTable]) -> Iterator[tuple[TableName, TableOwner]]:
        naming = TableNaming.of(self.config)
        for database, table in listed:
            parameters, name = table.get("Parameters", {}), TableName(database, table["Name"])
            owner = TableOwner.of(parameters)
            if owner is None or naming.table_of(owner.stream) != name:
                continue
            if not (self.with_hive or is_iceberg(table)):
                self.notes.append(f"Table {name} is a Hive table, which needs no maintenance.")
            elif not self._is_here(location := table.get("StorageDescriptor", {}).get("Location", "")):
                self.notes.append(f"Table {name} is at {location}, outside bucket_name and bucket_prefix.")
            else:
                yield name, owner

    def _is_here(self, location: str) -> bool:
        return self.config.follow_table_location or is_inside(location, self.config.uri(""))

    def _in_databases(self) -> Iterator[ListedTable]:
        for database in self._databases():
            try:
                listed = list(self.catalog.tables(database))
            except Exception as error:
                failure = explain(error, doing="list the tables of", resource=database)
                is_of_others = database != self.config.lakeformation_database_name
                if failure is None or failure.type != "config_error" or not is_of_others:
                    raise
                # Another connection, with another identity, may have created it.
                self.notes.append(f"{failure.message} Its tables were not looked at.")
                continue
            yield from listed

    def _databases(self) -> list[str]:
        own = self.config.lakeformation_database_name
        if self.config.database_strategy == "single":
            return [own]
        try:
            ours = {each.name for each in self.catalog.databases() if each.ours}
        except Exception as error:
            failure = explain(error, doing="list the databases of", resource="the Data Catalog")
            if failure is None:
                raise
            self.notes.append(f"{failure.message} Only {own} was looked at; name streams of others with --stream.")
            return [own]
        return [own, *sorted(ours - {own})]

    def _of_stream(self, stream: str) -> Iterator[ListedTable]:
        """Yield the tables that a stream of that name may have."""
        for name in TableNaming.of(self.config).candidates(stream):
            if (found := self.catalog.find(name)) is not None:
                yield ListedTable(name.database, found)
