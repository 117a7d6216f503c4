"""`destination-datalake delete-rows`: erase rows by ID from everything that syncs with a configuration wrote."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from destination_datalake import terminal
from destination_datalake.archive.objects import ARCHIVE_FOLDER, table_folder
from destination_datalake.archive.plan import ReplayProgress
from destination_datalake.aws.objects import put
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.services import NO_LIMITS
from destination_datalake.erasure import dropped, targets
from destination_datalake.erasure.dropped import UndescribedTable
from destination_datalake.erasure.ids import IdsFile, Mask
from destination_datalake.erasure.ledger import Ledger
from destination_datalake.erasure.model import (
    ErasedObject,
    ErasureTarget,
    Report,
    Request,
    TargetReport,
    now,
    target_report,
)
from destination_datalake.erasure.tables import IcebergTarget
from destination_datalake.errors import ConfigError, ConnectorError, Failure
from destination_datalake.files.suppression import REPORT
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.factory import rebuild_of
from destination_datalake.tables.naming import REBUILD_SUFFIX, REPLAY_OF, TableFinder, TableNaming, is_replay_of
from destination_datalake.tables.table import TableName
from destination_datalake.termination import EXIT_TERMINATED, Termination

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.catalog import TableCatalog

_DESCRIPTION = """\
Erase rows by ID from all data that syncs with a configuration wrote. This data includes branches, tags and history of
tables, and unreferenced files. A second search then verifies that no row with one of the IDs remains. If rows remain,
the command fails and reports their locations. If the command is interrupted, run it again to continue."""

_EPILOG = """\
The option --ids-file names a UTF-8 file with one ID per line. An ID is a value of the column, such as 42 or
anna@example.com. The command never copies this file. Messages, reports and the request in S3 never contain an ID.

In a column of numbers, dates or times, an ID matches every form of the same value that a sync reads. For example, 735
matches "735", " 735" and 735.0. In a text column, an ID matches only the identical text, including case and spaces.

  destination-datalake delete-rows --config config.json --all --column user_id --ids-file ids.txt --dry-run
  destination-datalake delete-rows --config config.json --stream shop.orders --column user_id --ids-file ids.txt
  destination-datalake delete-rows --config config.json --table lake.orders --column user.id --ids-file ids.txt \\
      --report erased.html

The exit code is 0, 1 if the configuration is not valid, rows remain or the erasure failed, 2 for an invalid command
line, and 143 after SIGTERM."""


def run_delete_rows(arguments: Sequence[str]) -> int:
    """Run the command `delete-rows`. Return the exit code: 0, 1 or 143.

    `arguments` does not contain the command's name. Raises SystemExit with code 2 if the command line is invalid, and
    with code 0 for `--help`.
    """
    with terminal.terminable() as termination:
        options = _parser().parse_args(arguments)
        return terminal.run(
            options, "erase rows from", "the tables", lambda config: _delete_rows(config, options, termination)
        )


def _delete_rows(config: Config, options: argparse.Namespace, termination: Termination) -> int:
    file = IdsFile(Path(options.ids_file))
    file.require()
    if options.report is not None:
        _require_writable(Path(options.report))
    if config.catalog.limits.assigns_locations:
        raise ConfigError(
            "Cannot erase rows from tables in an S3 table bucket: Amazon S3 Tables decides when files are deleted, so "
            "the erasure cannot be verified. Nothing was changed."
        )
    access = aws_access(config)
    catalog = catalog_of(config, access, NO_LIMITS)
    target = _target(options)
    tables = _tables(options, config, access, catalog)
    ledger = Ledger.open(options.column, target, file, config, access)
    with terminal.engine_on_demand(encrypting(config)) as engine:
        mask = Mask(options.column, file.typed(pa.string(), options.column))
        request = Request(
            ledger.record.id,
            options.column,
            file,
            config,
            access,
            catalog,
            engine(),
            mask,
            options.keep_history,
            drop_tags=options.drop_tags,
            is_resumed=ledger.is_resumed,
        )
        iceberg_tables = [name for name in tables if (entry := catalog.find(name)) is not None and is_iceberg(entry)]
        erasure_targets: list[ErasureTarget] = [
            IcebergTarget(name, column_request, ledger, may_lack_column=options.all)
            for name in iceberg_tables
            for column_request in targets.requests_by_column(request, name)
        ]
        erasure_targets += targets.erasure_targets(request, tables)
        erasure = Erasure(erasure_targets, tables, request, ledger, lambda: termination.requested, options.suppress)
        try:
            report = erasure.dry_run() if options.dry_run else erasure.run()
        except ConnectorError as error:
            failure = error.failure
            masked = dataclasses.replace(failure, message=mask(failure.message), detail=mask(failure.detail))
            raise ConnectorError(masked) from None
        if report is None:
            return EXIT_TERMINATED
        try:
            # Write the file before printing the report, because printing to a closed pipe would end the command.
            if options.report is not None:
                as_page = options.report.lower().endswith((".html", ".htm"))
                Path(options.report).write_bytes(report.page().encode() if as_page else report.encoded())
        except OSError as error:
            remedy = "Nothing was changed." if options.dry_run else f"Read the report in {ledger.folder}/."
            raise _unwritable(options.report, error, remedy) from error
        finally:
            _print_report(report)
    return 0 if options.dry_run or not report.is_left else 1


def _require_writable(path: Path) -> None:
    """Raise ConfigError if the command cannot write the report to `path`. Leaves no new file behind."""
    is_new = not path.exists()
    if path.is_fifo():
        return  # Closing a pipe here would signal the end of the report to its reader.
    try:
        path.open("ab").close()
    except OSError as error:
        raise _unwritable(path, error, "Nothing was changed.") from error
    if is_new:
        path.unlink()


def _unwritable(path: object, error: OSError, remedy: str) -> ConfigError:
    return ConfigError(f"Cannot write the report to {path} (--report): {error.strerror or error}. {remedy}")


def encrypting(config: Config) -> Config:
    """Return the configuration with Spark's encryption of local files enabled, unless `spark.conf` disables it.

    Spark writes the IDs that it broadcasts to local files. If a Spark process is killed, these files remain, but nobody
    can decrypt them, because the key exists only in the memory of Spark's processes. With `spark.remote`, returns the
    configuration unchanged, because a Spark Connect server accepts this property only when the server starts.
    """
    if config.spark.is_connect:
        return config
    conf = {"spark.io.encryption.enabled": "true", **config.spark.conf}
    return config.model_copy(update={"spark": config.spark.model_copy(update={"conf": conf})})


def _target(options: argparse.Namespace) -> tuple[str, ...]:
    if options.all:
        return ("all",)
    return ("table", options.table) if options.table is not None else ("stream", options.stream)


def _tables(options: argparse.Namespace, config: Config, access: AwsAccess, catalog: TableCatalog) -> list[TableName]:
    """Return the tables to search. Raises ConfigError if there are none.

    These are the requested tables, and the tables that replays created from the requested tables. They include dropped
    tables that have left objects.
    """
    finder = TableFinder(config, catalog, with_hive=True)
    remaining = dropped.remaining_tables(config, access, catalog, finder.notes)
    if not (tables := [*_requested_tables(options, config, catalog, finder, remaining)]):
        raise ConfigError("Found no tables that match this configuration. Check --config. Nothing was changed.")
    dropped_replays = [
        name for table in tables for name in dropped.replays_of(config, access, table) if name in remaining
    ]
    return [*dict.fromkeys((*tables, *_replayed_tables(tables, catalog), *dropped_replays))]


def _replayed_tables(tables: Sequence[TableName], catalog: TableCatalog) -> list[TableName]:
    """Return the tables that replays created from these tables."""
    names = {str(name) for name in tables}
    return [
        TableName(entry.database, entry.glue_table["Name"])
        for database in sorted({name.database for name in tables})
        for entry in dropped.tables_of(catalog, database)
        if entry.glue_table.get("Parameters", {}).get(REPLAY_OF) in names
    ]


def _requested_tables(
    options: argparse.Namespace,
    config: Config,
    catalog: TableCatalog,
    finder: TableFinder,
    remaining: Sequence[TableName],
) -> Iterator[TableName]:
    if options.stream is not None:
        remaining = [name for name in remaining if name in TableNaming.from_config(config).candidates(options.stream)]
    if options.table is not None:
        database, _, table = options.table.rpartition(".")
        name = TableName(database, table)
        if not (database and table) or (catalog.find(name) is None and name not in remaining):
            raise ConfigError(f"--table {options.table}: the table does not exist. Use the form database.table.")
        yield name
        return
    try:
        tables = finder.tables([options.stream] if options.stream is not None else [])
    except ConfigError:
        if not remaining:
            raise
        tables = []  # A dropped table can still have files.
    yield from dict.fromkeys((*tables, *remaining))
    for note in finder.notes:
        terminal.note(f"Note: {note}")


@dataclass(slots=True)
class Erasure:
    """The steps of the command `delete-rows`.

    `run` first checks the preconditions of all targets. If a check fails, it changes nothing. Otherwise, it writes the
    request to the ledger, and stops running replays. It searches all targets, erases the rows, and searches all targets
    again. It then stores the report and, if no object is "left", marks the request as finished.
    """

    targets: Sequence[ErasureTarget]
    tables: Sequence[TableName]
    request: Request
    ledger: Ledger
    is_stopped: Callable[[], bool]
    suppress: bool = False
    started: str = field(default_factory=now)

    def dry_run(self) -> Report:
        """Search all targets, and return a report of the rows that `run` would erase. Changes nothing.

        Raises ConnectorError and the errors of the AWS libraries.
        """
        self._require()
        reports = []
        for target in self.targets:
            objects = [replace(object_, outcome="found") for object_ in target.find()]
            reports.append(target_report(target, objects, None, {}, self.request.mask))
        return self._report(reports, dry_run=True)

    def run(self) -> Report | None:
        """Erase the rows with one of the IDs, search again, and return the report.

        Returns None if `is_stopped` ended the run. Raises ConnectorError and the errors of the AWS libraries.
        """
        self._require()
        types = {str(name): self.request.types[name] for name in self.tables if name in self.request.types}
        mask = self.request.mask
        self.ledger.begin(types, self.request.file, suppress=self.suppress)
        self._require_no_new_replay()
        for name in self.tables:
            self._displace_replay(name)
        for target in self.targets:
            self.ledger.append(
                "found", [(target.name, mask.uri(object_.uri), object_.rows_found) for object_ in target.find()]
            )
        erased_objects: dict[str, list[ErasedObject]] = {}
        for target in self.targets:
            if self.is_stopped():
                return None
            erased_objects[target.name] = [*target.erase()]
        found_earlier: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for name, uri, rows in self.ledger.lines("found"):
            found_earlier[name][uri] = rows
        reports = []
        for target in self.targets:
            if self.is_stopped():
                return None
            afterwards = [*target.find()]
            objects = erased_objects[target.name]
            reports.append(target_report(target, objects, afterwards, found_earlier[target.name], mask))
        report = self._report(reports, dry_run=False)
        s3 = self.request.access.client("s3")
        put(s3, f"{self.ledger.folder}/{REPORT}", report.encoded())
        put(s3, f"{self.ledger.folder}/report.html", report.page().encode())
        if not report.is_left:
            self.ledger.finish()
        return report

    def _require_no_new_replay(self) -> None:
        """Raise ConnectorError if a replay has created a table since this command listed the tables.

        Replays that start after `begin` omit the rows to erase. A replay that started earlier has not read the request.
        """
        if new := {*_replayed_tables(self.tables, self.request.catalog)} - {*self.tables}:
            message = (
                f"A replay created table {min(new)} while this command started, so the table may contain rows to "
                "erase. Run the same command again."
            )
            raise ConnectorError(Failure(message, message, "transient_error"))

    def _displace_replay(self, name: TableName) -> None:
        """Stop a running `replay --replace` of a table, and drop the unfinished table to which the replay writes.

        The unfinished table may contain rows to erase. The next replay starts from the beginning, and omits these rows.
        """
        config, catalog, access = self.request.config, self.request.catalog, self.request.access
        unfinished = TableName(name.database, f"{name.table}{REBUILD_SUFFIX}")
        replay_folder = f"{table_folder(config.uri(ARCHIVE_FOLDER), *name)}/replay"
        rebuild = rebuild_of(config, name, catalog, f"{replay_folder}/metadata")
        if catalog.find(name) is None or not is_replay_of(name, catalog.find(unfinished)):
            return
        if (state := rebuild.state(unfinished)) is None:
            return
        ReplayProgress(f"{replay_folder}/{unfinished.table}.json", access).claim(self.request.id, time.time())
        self.ledger.mark_for_deletion([file.uri for file in state.written])
        rebuild.drop(unfinished)

    def _require(self) -> None:
        for target in self.targets:
            target.require()
        if not self.request.searched and not any(isinstance(target, UndescribedTable) for target in self.targets):
            raise self._unknown_column()

    def _unknown_column(self) -> ConfigError:
        column, names = self.request.column, set[str]()
        for name in self.tables:
            if (entry := self.request.catalog.find(name)) is not None:
                names |= {column["Name"] for column in entry.get("StorageDescriptor", {}).get("Columns", ())}
        similar = " or ".join(get_close_matches(column, sorted(names), n=3))
        return ConfigError(
            f"Unknown column --column {column}: no table, archive or reject contains this column. "
            f"{f'Did you mean {similar}? ' if similar else ''}Name a nested field by its path, such as user.id. "
            "Nothing was changed."
        )

    def _report(self, targets: Sequence[TargetReport], *, dry_run: bool) -> Report:
        record, config = self.ledger.record, self.request.config
        found_afterwards = None if dry_run else sum(target.found_afterwards or 0 for target in targets)
        return Report(
            request=record.id,
            connector=version("destination-datalake"),
            bucket=config.bucket_name,
            prefix=config.key(),
            column=record.column,
            target=record.target,
            ids=record.ids,
            ids_with_rows=len(set[str]().union(*(ids.matched_texts() for ids in self.request.searched))),
            started=record.started,
            ended=now(),
            dry_run=dry_run,
            complete=not dry_run and not found_afterwards and not any(target.left for target in targets),
            keeps_history_days=self.request.keep_history,
            found_afterwards=found_afterwards,
            places=tuple(targets),
            suppress=record.suppress,
        )


def _print_report(report: Report) -> None:
    would = "would be " if report.dry_run else ""
    for line in report.places:
        rows = line.rows_found if report.dry_run else line.rows_removed
        terminal.write(
            f"{line.place}: {rows} rows {would}removed from {line.objects_found} objects "
            f"({line.objects_read} of {line.objects_searched} read)"
            + (f", copies of {line.distinct_rows} distinct rows" if line.distinct_rows else "")
            + (f", {line.snapshots_expired} snapshots expired" if line.snapshots_expired else "")
        )
        for object_ in line.objects if report.dry_run else line.left:
            content = f"{object_.rows_found} rows" if object_.rows_found >= 0 else "rows not counted"
            terminal.write(f"  {object_.uri}: {content}{f': {object_.reason}' if object_.reason else ''}")
    terminal.write(f"This run found {report.ids_with_rows} of {report.ids} IDs.")
    terminal.write(f"Request {report.request}: {report.verdict}.")
    if report.suppress:
        terminal.write("Syncs that start from now on reject records with these IDs.")


def _parser() -> argparse.ArgumentParser:
    parser = terminal.parser("delete-rows", _DESCRIPTION, _EPILOG)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--table", metavar="DATABASE.TABLE", help="erase rows from this table")
    target.add_argument(
        "--stream",
        metavar="NAME",
        help="erase rows of this stream; NAME is namespace.name, or name without a namespace",
    )
    target.add_argument("--all", action="store_true", help="erase rows from all tables of the configuration")
    parser.add_argument(
        "--column",
        required=True,
        metavar="NAME",
        help="column that contains the IDs; for a nested field, its dotted path, such as user.id",
    )
    parser.add_argument("--ids-file", required=True, metavar="FILE", help="UTF-8 file with one ID per line")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the rows to erase per object without changing anything"
    )
    parser.add_argument(
        "--keep-history",
        type=_days,
        metavar="DAYS",
        help="keep the snapshots of the last DAYS days, which still contain the rows",
    )
    parser.add_argument("--drop-tags", action="store_true", help="drop tags of snapshots that contain the rows")
    parser.add_argument(
        "--suppress",
        action="store_true",
        help="make later syncs reject records with these IDs without storing these records",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write the report to FILE, as HTML if the name ends in .html, otherwise as JSON",
    )
    return parser


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1
    if not 0 < days <= 3650:
        raise argparse.ArgumentTypeError(f"{text} is not a valid number of days: use a number above 0 and at most 3650")
    return days
