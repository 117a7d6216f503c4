"""`destination-datalake verify`: tables read to their last value, and compared with what is said of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from destination_datalake import terminal
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.tables import REPORTS_FOLDER
from destination_datalake.errors import ConfigError
from destination_datalake.files.jobs import dealt, done
from destination_datalake.files.verify import VerifyTask, verify
from destination_datalake.reports.reading import Reports
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.finder import TableFinder
from destination_datalake.tables.hive.verification import VerifiedHive
from destination_datalake.tables.iceberg.verification import VerifiedIceberg
from destination_datalake.tables.table import TableConflict, TableName
from destination_datalake.tables.verification import Finding, Reported, Total, VerifiedTable, total
from destination_datalake.termination import EXIT_TERMINATED, Termination

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog

_DESCRIPTION = """\
Read tables to their last value, on Spark, by two readers that share no code (the connector's own, and DuckDB's), and
compare them with what is said of them: sizes, rows, nulls and bounds in Iceberg's manifests, snapshots' summaries, the
columns of the catalog, registered partitions, the report of the last sync; and look for files that are not the table's.
Nothing is changed. Syncs and maintenance may run."""

_EPILOG = """\
  destination-datalake verify --config config.json --all
  destination-datalake verify --config config.json --table landing.orders --json
  destination-datalake verify --config config.json --stream shop.orders

The exit code is 0, 1 if something does not agree or cannot be read, 2 for a wrong command line, and 143 after
SIGTERM."""

_FILES_AT_ONCE = 2_000
"""Files of one Spark job, which bounds the driver's memory."""

_TASKS_PER_SLOT = 4
_ATTEMPTS = 5
_SHOWN = 100
"""Problems of a table that the terminal shows; JSON has all."""


@dataclass(slots=True)
class Verified:
    """What was found of a table, as `--json` prints it. `notes` are what is no problem, or was not compared."""

    table: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run_verify(arguments: Sequence[str], spark: Engine | None = None) -> int:
    """Run the command with these arguments (without its name); return the exit code: 0, 1 or 143.

    Uses `spark`, and starts its own if it is given none but needs one. Raises SystemExit with code 2 for a wrong
    command line, and with 0 for `--help`.
    """
    with terminal.terminable(spark) as termination:
        asked = _parser().parse_args(arguments)
        return terminal.run(
            asked,
            "verify the tables of",
            "the configuration",
            lambda config: _verify(config, asked, termination, spark),
        )


def _parser() -> argparse.ArgumentParser:
    parser = terminal.parser("verify", _DESCRIPTION, _EPILOG)
    terminal.add_days(parser)
    terminal.add_json(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--table", metavar="DB.TABLE", help="a table by its name in the catalog")
    which.add_argument("--stream", metavar="NAME", help="the table of a stream: namespace.name, or name without one")
    which.add_argument("--all", action="store_true", help="all tables that this configuration has created")
    return parser


def _verify(config: Config, asked: argparse.Namespace, termination: Termination, spark: Engine | None) -> int:
    access = aws_access(config)
    catalog = catalog_of(config, access)
    names = _tables(config, catalog, asked)
    reported = _reported(Reports(access.client("s3"), config.uri(REPORTS_FOLDER)), asked.days, names)
    found: list[Verified] = []
    with terminal.engine_on_demand(config, spark) as engine:
        for name in names:
            if termination.requested:
                return EXIT_TERMINATED
            lists_folder = not config.catalog.limits.assigns_locations
            found.append(verified(name, catalog, reported.get(name), engine, lists_folder=lists_folder))
            for note in () if asked.json else found[-1].notes:
                terminal.note(f"{name}: {note}")
    if asked.json:
        terminal.write(json.dumps({"tables": [asdict(each) for each in found]}, ensure_ascii=False))
    elif found:
        _show(found)
    else:
        terminal.note("There are no tables of this configuration.")
    return 1 if any(each.problems for each in found) else 0


def _tables(config: Config, catalog: TableCatalog, asked: argparse.Namespace) -> list[TableName]:
    if asked.table is None:
        finder = TableFinder(config, catalog, with_hive=True)
        names = finder.tables([asked.stream] if asked.stream else [])
        for note in finder.notes:
            terminal.note(f"Note: {note}")
        return names
    database, _, table = asked.table.rpartition(".")
    name = TableName(database or config.lakeformation_database_name, table)
    if catalog.find(name) is None:
        raise ConfigError(f"--table {asked.table}: there is no such table. Name it as database.table.")
    return [name]


def _reported(reports: Reports, days: int, names: Iterable[TableName]) -> dict[TableName, Reported]:
    """Return what the last report of each table says."""
    missing = {str(name): name for name in names}
    found: dict[TableName, Reported] = {}
    is_last = True
    for run in reports.each(days):
        if not run.has_report:
            is_last = False
            continue
        for line in run.streams:
            if (name := missing.pop(line.table, None)) is not None:
                found[name] = Reported(
                    line.run_id,
                    datetime.fromisoformat(line.finish_time or line.start_time).replace(tzinfo=UTC),
                    line.snapshot_id,
                    line.table_rows,
                    line.table_files,
                    line.row_count,
                    line.files,
                    is_last,
                )
        if not missing:
            break
    return found


def verified(
    name: TableName,
    catalog: TableCatalog,
    reported: Reported | None,
    engine: Callable[[], Engine],
    *,
    lists_folder: bool,
) -> Verified:
    """Return what was found of a table. Raises ConnectorError, and what AWS libraries raise.

    What another writer has changed meanwhile is looked at again, and is no problem.
    """
    first = Verified(str(name))
    suspects: set[str] | None = None
    for _ in range(_ATTEMPTS):
        found = Verified(str(name))
        try:
            entry = catalog.find(name)
            table: VerifiedTable
            if entry is not None and is_iceberg(entry):
                table = VerifiedIceberg(name, catalog, found.problems, found.notes, lists_folder=lists_folder)
            else:
                table = VerifiedHive(name, catalog.access_of(name), reported, found.problems, found.notes)
            read = _read(table, found, suspects, engine, catalog.access_of(name))
            table.conclude(read if suspects is None else None, reported)
            first = found if suspects is None else first
            changed = bool(found.problems) and table.has_changed()
        except (FileNotFoundError, TableConflict) as error:
            found.problems.append(Finding(str(name), f"cannot be loaded: {error}"))
            changed = False
        first.problems = found.problems
        if not changed:
            break
        # Only what was wrong is read again: files do not change, and the others were there.
        suspects = {each.where for each in found.problems}
    return first


def _read(
    table: VerifiedTable, found: Verified, suspects: set[str] | None, engine: Callable[[], Engine], access: AwsAccess
) -> dict[str, Total]:
    """Read the files, those of `suspects` only if there are some; return what was read by group."""
    read: dict[str, Total] = {}
    wanted = (each for each in table.claims() if suspects is None or each.source.uri in suspects)
    without_duckdb = 0
    while some := [*islice(wanted, _FILES_AT_ONCE)]:
        spark = engine()
        tasks = [VerifyTask(share, access) for share in dealt(some, spark.parallelism() * _TASKS_PER_SLOT)]
        results = done(spark.run(verify, tasks))
        total(results, read)
        found.problems += [Finding(each.uri, problem) for each in results for problem in each.problems]
        without_duckdb += sum(not (each.by_duckdb or each.problems or each.gone) for each in results)
    if without_duckdb:
        found.notes.append(
            f"{without_duckdb} files were not read by DuckDB, which is not there or has too little memory."
        )
    found.files, found.rows, found.bytes = (
        sum(getattr(each, what) for group, each in read.items() if what == "bytes" or group != "deletes")
        for what in ("files", "rows", "bytes")
    )
    return read


def _show(found: Sequence[Verified]) -> None:
    summary = terminal.table("table", "verified", "files", "rows", "MB", "problems")
    problems = terminal.table("table", "where", "what does not agree")
    for each in found:
        agrees = "healthy" if not each.problems else "wrong"
        counts = (f"{each.files:,}", f"{each.rows:,}", f"{each.bytes / 1e6:,.1f}", f"{len(each.problems):,}")
        summary.add_row(terminal.text(each.table), terminal.coloured(agrees), *counts)
        for finding in each.problems[:_SHOWN]:
            problems.add_row(terminal.text(each.table), terminal.text(finding.where), terminal.text(finding.what))
    terminal.write_table(summary)
    if problems.row_count:
        terminal.write_table(problems)
