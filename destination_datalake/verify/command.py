"""`destination-datalake verify`: tables read to their last value, and compared with what is said of them."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from destination_datalake import terminal
from destination_datalake.aws.objects import get_or_none
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.tables import REPORTS_FOLDER
from destination_datalake.errors import ConfigError
from destination_datalake.files.jobs import dealt, done
from destination_datalake.files.suppression import DELETIONS_FOLDER, requests
from destination_datalake.files.suppression import REPORT as ERASURE_REPORT
from destination_datalake.files.verify import VerifyTask, verify
from destination_datalake.reports.reading import Reports
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.finder import TableFinder
from destination_datalake.tables.hive.verification import VerifiedHive
from destination_datalake.tables.iceberg.verification import VerifiedIceberg
from destination_datalake.tables.table import TableConflict, TableName
from destination_datalake.tables.verification import Finding, Reported, Total, VerifiedTable, total, unreadable
from destination_datalake.termination import EXIT_TERMINATED, Termination

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef
    from mypy_boto3_s3 import S3Client

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.reports.report import ReportLine
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog

_DESCRIPTION = """\
Read tables to their last value, on Spark, by two readers that share no code (the connector's own, and DuckDB's), and
compare them with what is said of them: sizes, rows, nulls and bounds in Iceberg's manifests, snapshots' summaries, the
columns of the catalog, registered partitions, the reports of syncs; and look for files that are not the table's.
Nothing is changed. Syncs and maintenance may run."""

_EPILOG = """\
  destination-datalake verify --config config.json --all
  destination-datalake verify --config config.json --table landing.orders --json
  destination-datalake verify --config config.json --stream shop.orders

The exit code is 0, 1 if something does not agree or cannot be read, 2 for a wrong command line, and 143 after
SIGTERM."""

_FILES_AT_ONCE = 2_000
"""Files of one Spark job, which bounds the driver's memory."""

_SECOND = timedelta(seconds=1)
"""The resolution of times in the ledger of erasures."""

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
    s3 = access.client("s3")
    try:
        erasures = [*_erasures(s3, config.uri(DELETIONS_FOLDER))]
    except (s3.exceptions.ClientError, ValueError) as error:  # The ledger may be for other eyes.
        why = unreadable(error, config.uri(DELETIONS_FOLDER))
        terminal.note(f"Note: the ledger of erasures, {config.uri(DELETIONS_FOLDER)}/, {why}.")
        erasures = [_Erasure([*map(str, names)], None, None)]
    reported = _reported(Reports(s3, config.uri(REPORTS_FOLDER)), asked.days, names, erasures)
    found: list[Verified] = []
    with terminal.engine_on_demand(config, spark) as engine:
        for name in names:
            if termination.requested:
                return EXIT_TERMINATED
            lists_folder = not config.catalog.limits.assigns_locations
            found.append(verified(name, catalog, reported.get(name, ()), engine, lists_folder=lists_folder))
            for note in () if asked.json else found[-1].notes:
                terminal.note(f"{name}: {note}")
    if termination.requested:  # It may be why the last table could not be read.
        return EXIT_TERMINATED
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


def _reported(
    reports: Reports, days: int, names: Iterable[TableName], erasures: Sequence[_Erasure]
) -> dict[TableName, list[Reported]]:
    """Return what the reports of each table say, the newest first."""
    wanted, now = {str(name): name for name in names}, datetime.now(UTC)
    later: dict[TableName, _Later] = {}
    found: dict[TableName, list[Reported]] = {}
    has_successor = False
    for run in reports.each(days):
        has_successor |= not run.has_report
        for line in run.streams if run.has_report else ():
            if (name := wanted.get(line.table)) is None:
                continue
            since = later.setdefault(name, _Later())
            since.add(line)
            finished = datetime.fromisoformat(line.finish_time or line.start_time).replace(tzinfo=UTC)
            erased = [each for each in erasures if line.table in each.tables and (each.finished or now) >= finished]
            rows = [each.rows.get(line.run_id, 0) for each in erased if each.rows is not None]
            found.setdefault(name, []).append(
                Reported(
                    run=line.run_id,
                    finished=finished,
                    snapshot=line.snapshot_id,
                    table_rows=line.table_rows,
                    table_files=line.table_files,
                    rows=line.row_count,
                    files=line.files,
                    bytes=line.bytes_written,
                    has_successor=has_successor,
                    may_be_replaced=since.overwrites or len(since.generations) > 1,
                    is_rewritten=since.widens,
                    rows_erased=sum(rows) if len(rows) == len(erased) else None,
                )
            )
    return found


@dataclass(slots=True)
class _Later:
    """What a sync and those after it have done to a table."""

    overwrites: bool = False
    widens: bool = False
    generations: set[int | None] = field(default_factory=set)

    def add(self, line: ReportLine) -> None:
        self.overwrites |= line.sync_mode == "overwrite"
        self.widens |= bool(line.promoted_columns)
        self.generations.add(line.generation_id)


class _Object(msgspec.Struct):
    uri: str
    rows_removed: int


class _Place(msgspec.Struct):
    objects: tuple[_Object, ...]


class _Report(msgspec.Struct):
    places: tuple[_Place, ...]


@dataclass(frozen=True, slots=True)
class _Erasure:
    """A request of `delete-rows`: its tables, when it was finished, and the rows that it has removed of each run.

    `rows` is None without a report.
    """

    tables: Collection[str]
    finished: datetime | None
    rows: Mapping[str, int] | None


def _erasures(s3: S3Client, folder: str) -> Iterator[_Erasure]:
    """Yield the requests of the ledger in this folder, an S3 URI. Raises errors of AWS, and ValueError."""
    for request in requests(folder, s3):
        finished = None if request.finished is None else datetime.fromisoformat(request.finished) + _SECOND
        content = get_or_none(s3, f"{folder}/{request.id}/{ERASURE_REPORT}")
        if content is None:
            yield _Erasure(request.tables.keys(), finished, None)
            continue
        report = msgspec.json.decode(content, type=_Report)
        rows: Counter[str] = Counter()
        for each in (each for place in report.places for each in place.objects):
            rows[each.uri.rpartition("/")[2].partition("-")[0]] += max(0, each.rows_removed)
        yield _Erasure(request.tables.keys(), finished, rows)


def verified(
    name: TableName,
    catalog: TableCatalog,
    reported: Sequence[Reported],
    engine: Callable[[], Engine],
    *,
    lists_folder: bool,
) -> Verified:
    """Return what was found of a table; why it cannot be read is a problem of it. Raises errors of exhaustion.

    What another writer has changed meanwhile is looked at again, and is no problem.
    """
    first = Verified(str(name))
    suspects: set[str] | None = None
    for _ in range(_ATTEMPTS):
        found = Verified(str(name))
        entry: TableTypeDef | None = None
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
        except Exception as error:  # Whatever it is, other tables are verified.
            is_missing = isinstance(error, FileNotFoundError | TableConflict)
            what = f"cannot be loaded: {error}" if is_missing else unreadable(error, str(name))
            metadata = "" if entry is None else entry.get("Parameters", {}).get("metadata_location")
            found.problems.append(Finding(metadata or str(name), what))
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
        found.notes.append(f"{without_duckdb} files were not read by DuckDB, which has too little memory.")
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
