"""`destination-datalake verify`: read all rows of tables, and compare the result with the tables' metadata."""

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
from destination_datalake.files.jobs import distribute, results_or_raise
from destination_datalake.files.suppression import DELETIONS_FOLDER, requests
from destination_datalake.files.suppression import REPORT as ERASURE_REPORT
from destination_datalake.files.verify import VerifyTask, verify
from destination_datalake.reports.health import Reports
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.hive.verification import VerifiedHive
from destination_datalake.tables.iceberg.verification import VerifiedIceberg
from destination_datalake.tables.naming import TableFinder
from destination_datalake.tables.table import TableConflict, TableName
from destination_datalake.tables.verification import (
    Finding,
    Reported,
    SyncStarts,
    Total,
    VerifiedTable,
    run_of,
    total,
    unreadable,
)
from destination_datalake.termination import EXIT_TERMINATED, Termination

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef
    from mypy_boto3_s3 import S3Client

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.reports.report import ReportLine
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog

_DESCRIPTION = """\
Scan tables in full on Spark, with two independent readers (the connector's reader and DuckDB), and compare the result
with the metadata: sizes, rows, nulls and bounds in Iceberg's manifests, summaries of snapshots, columns in the catalog,
registered partitions, and sync reports. Also find files that do not belong to a table. The command changes nothing.
Syncs and maintenance can run at the same time."""

_EPILOG = """\
  destination-datalake verify --config config.json --all
  destination-datalake verify --config config.json --table landing.orders --json
  destination-datalake verify --config config.json --stream shop.orders

The exit code is 0, 1 if a table differs from its metadata or cannot be read, 2 for an invalid command line, and 143
after SIGTERM."""

_FILES_PER_JOB = 2_000
"""The maximum number of files per Spark job. This limit bounds the driver's memory."""

_SECOND = timedelta(seconds=1)
"""The resolution of times in the erasure ledger, which stores whole seconds."""

_TASKS_PER_SLOT = 4
_ATTEMPTS = 5
_MAX_SHOWN = 100
"""The maximum number of problems per table in the text output. The JSON output contains all problems."""


@dataclass(slots=True)
class TableResult:
    """The result of the verification of one table. The option `--json` prints all members.

    `files`, `rows` and `bytes` are the totals of the files that the command read. `notes` contains remarks that are not
    problems, for example about skipped comparisons.
    """

    table: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run_verify(arguments: Sequence[str], spark: Engine | None = None) -> int:
    """Run the command `verify` with the given command-line arguments. Return the exit code: 0, 1 or 143.

    If `spark` is None, starts a Spark engine when the command needs one. Raises SystemExit with code 2 if the command
    line is invalid, and with code 0 for `--help`.
    """
    with terminal.terminable(spark) as termination:
        options = _parser().parse_args(arguments)
        return terminal.run(
            options,
            "verify the tables of",
            "the configuration",
            lambda config: _verify(config, options, termination, spark),
        )


def _parser() -> argparse.ArgumentParser:
    parser = terminal.parser("verify", _DESCRIPTION, _EPILOG)
    terminal.add_days(parser)
    terminal.add_json(parser)
    selection = parser.add_mutually_exclusive_group(required=True)
    selection.add_argument("--table", metavar="DB.TABLE", help="the table with this name in the catalog")
    selection.add_argument(
        "--stream", metavar="NAME", help="the table of this stream: namespace.name, or name without a namespace"
    )
    selection.add_argument("--all", action="store_true", help="all tables that syncs with this configuration created")
    return parser


def _verify(config: Config, options: argparse.Namespace, termination: Termination, spark: Engine | None) -> int:
    access = aws_access(config)
    catalog = catalog_of(config, access)
    names = _tables(config, catalog, options)
    s3 = access.client("s3")
    try:
        erasures = [*_erasures(s3, config.uri(DELETIONS_FOLDER))]
    # The caller may lack permission to read the ledger.
    except (s3.exceptions.ClientError, ConfigError, ValueError) as error:
        reason = unreadable(error, config.uri(DELETIONS_FOLDER))
        terminal.note(f"Note: the ledger of erasures, {config.uri(DELETIONS_FOLDER)}/, {reason}.")
        # Assume an unknown erasure in every table, so that missing rows are not reported as a problem.
        erasures = [_Erasure([*map(str, names)], None, None)]
    reported = _reported(Reports(s3, config.uri(REPORTS_FOLDER)), options.days, names, erasures)
    results: list[TableResult] = []
    lists_folder = not config.catalog.limits.assigns_locations
    with terminal.engine_on_demand(config, spark) as engine:
        for name in names:
            if termination.requested:
                return EXIT_TERMINATED
            results.append(verify_table(name, catalog, reported.get(name, ()), engine, lists_folder=lists_folder))
            for note in () if options.json else results[-1].notes:
                terminal.note(f"{name}: {note}")
    if termination.requested:  # The termination may have caused the last table's problems.
        return EXIT_TERMINATED
    if options.json:
        terminal.write(json.dumps({"tables": [asdict(result) for result in results]}, ensure_ascii=False))
    elif results:
        _show(results)
    else:
        terminal.note("The command found no tables for this configuration.")
    return 1 if any(result.problems for result in results) else 0


def _tables(config: Config, catalog: TableCatalog, options: argparse.Namespace) -> list[TableName]:
    if options.table is None:
        finder = TableFinder(config, catalog, with_hive=True)
        names = finder.tables([options.stream] if options.stream else [])
        for note in finder.notes:
            terminal.note(f"Note: {note}")
        return names
    database, _, table = options.table.rpartition(".")
    name = TableName(database or config.lakeformation_database_name, table)
    if not table or catalog.find(name) is None:
        raise ConfigError(f"--table {options.table}: the table does not exist. Use the form database.table.")
    return [name]


def _reported(
    reports: Reports, days: int, names: Iterable[TableName], erasures: Sequence[_Erasure]
) -> dict[TableName, list[Reported]]:
    """Return the figures about each table in the reports of syncs, newest first, by the table's name.

    `days` is the number of days whose reports this function reads.
    """
    tables, now = {str(name): name for name in names}, datetime.now(UTC)
    changes_by_table: dict[TableName, _Changes] = {}
    reported: dict[TableName, list[Reported]] = {}
    has_successor = False
    for run in reports.runs(days):
        # A sync without a report may have changed the tables after all older syncs, which follow in this loop.
        has_successor |= not run.has_report
        for line in run.streams if run.has_report else ():
            if (name := tables.get(line.table)) is None:
                continue
            changes = changes_by_table.setdefault(name, _Changes())
            # A failed overwrite has published nothing, so the next sync may have dropped the overwrite's files.
            is_unpublished = line.sync_mode == "overwrite" and line.status != "finished"
            # The runs come newest first, so `changes` describes only later syncs.
            is_replaced = changes.overwrites or bool(changes.generations - {line.generation_id})
            changes.add(line)
            later_erasures = [
                erasure
                for erasure in erasures
                if line.table in erasure.tables and (erasure.finished or now) >= line.finished
            ]
            rows = [erasure.rows.get(line.run_id, 0) for erasure in later_erasures if erasure.rows is not None]
            reported.setdefault(name, []).append(
                Reported(
                    run=line.run_id,
                    started=run.sync.started,
                    finished=line.finished,
                    snapshot=line.snapshot_id,
                    table_rows=line.table_rows,
                    table_files=line.table_files,
                    rows=line.row_count,
                    files=line.files,
                    bytes=line.bytes_written,
                    has_successor=has_successor,
                    may_be_replaced=is_replaced or is_unpublished,
                    is_rewritten=changes.widens,
                    rows_erased=sum(rows) if len(rows) == len(later_erasures) else None,
                )
            )
    return reported


@dataclass(slots=True)
class _Changes:
    """The changes that the newest syncs have made to a table.

    The caller passes the table's report lines to `add`, newest first.
    """

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


class _Target(msgspec.Struct):
    objects: tuple[_Object, ...]


class _Report(msgspec.Struct):
    places: tuple[_Target, ...]


_REPORT = msgspec.json.Decoder(_Report)


@dataclass(frozen=True, slots=True)
class _Erasure:
    """A request of the command `delete-rows`.

    `tables` contains the names of the request's tables. `finished` is the time at which the request finished, or None
    if it is unfinished. `rows` maps the ID of each sync to the number of the sync's rows that the request removed, or
    is None if the request has no report.
    """

    tables: Collection[str]
    finished: datetime | None
    rows: Mapping[str, int] | None


def _erasures(s3: S3Client, folder: str) -> Iterator[_Erasure]:
    """Yield the requests in the ledger of `delete-rows` at the S3 URI `folder`.

    Raises AWS errors, and ConfigError or ValueError if the ledger is invalid.
    """
    for request in requests(folder, s3):
        finished = None if request.finished is None else _time(request.finished) + _SECOND
        content = get_or_none(s3, f"{folder}/{request.id}/{ERASURE_REPORT}")
        if content is None:
            yield _Erasure(request.tables.keys(), finished, None)
            continue
        report = _REPORT.decode(content)
        rows: Counter[str] = Counter()
        for object_ in (object_ for target in report.places for object_ in target.objects):
            rows[run_of(object_.uri)] += max(0, object_.rows_removed)
        yield _Erasure(request.tables.keys(), finished, rows)


def _time(text: str) -> datetime:
    """Parse a time with its offset from UTC. Raises ValueError for other texts."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or time.year == datetime.max.year:  # `_SECOND` must not exceed the maximum.
        raise ValueError(f"{text} is not a time in UTC")
    return time


def verify_table(
    name: TableName,
    catalog: TableCatalog,
    reported: Sequence[Reported],
    engine: Callable[[], Engine],
    *,
    lists_folder: bool,
) -> TableResult:
    """Read all files of a table, compare them with the table's metadata and `reported`, and return the result.

    If there are problems, and another writer has changed the table since this function loaded it, reads the files with
    problems again. Makes up to five attempts in total. If the table is unreadable, the result contains a problem.
    Raises an error only if a resource of this machine, such as disk space, is exhausted.
    """
    first = TableResult(str(name))
    suspects: set[str] | None = None
    for _ in range(_ATTEMPTS):
        result = TableResult(str(name))
        entry: TableTypeDef | None = None
        try:
            entry = catalog.find(name)
            table: VerifiedTable
            if entry is not None and is_iceberg(entry):
                table = VerifiedIceberg(name, catalog, result.problems, result.notes, lists_folder=lists_folder)
            else:
                table = VerifiedHive(name, catalog.access_of(name), reported, result.problems, result.notes)
            totals, starts = _read_files(table, result, suspects, engine, catalog.access_of(name))
            result.problems += starts.problems(reported)
            table.conclude(totals if suspects is None else None, reported)
            first = result if suspects is None else first
            changed = bool(result.problems) and table.has_changed()
        except Exception as error:  # The other tables are still verified.
            is_expected = isinstance(error, FileNotFoundError | TableConflict)
            problem = f"cannot be loaded: {error}" if is_expected else unreadable(error, str(name))
            metadata = "" if entry is None else entry.get("Parameters", {}).get("metadata_location")
            result.problems.append(Finding(metadata or str(name), problem))
            changed = False
        first.problems = result.problems
        if not changed:
            break
        # Files are immutable, so the next attempt only reads the files with problems.
        suspects = {finding.location for finding in result.problems}
    return first


def _read_files(
    table: VerifiedTable,
    result: TableResult,
    suspects: set[str] | None,
    engine: Callable[[], Engine],
    access: AwsAccess,
) -> tuple[dict[str, Total], SyncStarts]:
    """Read all files of the table. If `suspects` is not None, read only the files whose URIs it contains.

    Adds problems, notes and totals to `result`. Returns the totals of each group of files, and the starts of the syncs
    that wrote the files.
    """
    totals: dict[str, Total] = {}
    starts = SyncStarts()
    files = (file for file in table.expected_files() if suspects is None or file.source.uri in suspects)
    without_duckdb = 0
    while chunk := [*islice(files, _FILES_PER_JOB)]:
        spark = engine()
        tasks = [VerifyTask(share, access) for share in distribute(chunk, spark.parallelism() * _TASKS_PER_SLOT)]
        results = results_or_raise(spark.run(verify, tasks))
        total(results, totals)
        for file in results:
            starts.add(file)
        result.problems += [Finding(file.uri, problem) for file in results for problem in file.problems]
        without_duckdb += sum(not (file.by_duckdb or file.problems or file.was_deleted) for file in results)
    if without_duckdb:
        result.notes.append(
            f"DuckDB did not read {without_duckdb} files, because these files exceed the memory limit of DuckDB."
        )
    result.files, result.rows, result.bytes = (
        # Delete files count only towards the bytes.
        sum(getattr(group, figure) for name, group in totals.items() if figure == "bytes" or name != "deletes")
        for figure in ("files", "rows", "bytes")
    )
    return totals, starts


def _show(results: Sequence[TableResult]) -> None:
    summary = terminal.table("table", "verified", "files", "rows", "MB", "problems")
    problems = terminal.table("table", "place", "problem")
    for result in results:
        outcome = "unhealthy" if result.problems else "healthy"
        counts = (f"{result.files:,}", f"{result.rows:,}", f"{result.bytes / 1e6:,.1f}", f"{len(result.problems):,}")
        summary.add_row(terminal.text(result.table), terminal.coloured(outcome), *counts)
        for finding in result.problems[:_MAX_SHOWN]:
            problems.add_row(
                terminal.text(result.table), terminal.text(finding.location), terminal.text(finding.description)
            )
    terminal.write_table(summary)
    if problems.row_count:
        terminal.write_table(problems)
