"""The commands `history`, `health` and `report`, which read the reports of syncs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from destination_datalake import terminal
from destination_datalake.aws.access import mask_secrets
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.tables import REPORTS_FOLDER
from destination_datalake.errors import ConfigError, counted
from destination_datalake.files.suppression import DELETIONS_FOLDER
from destination_datalake.reports.health import Reports, Run, duration, erasures, health

if TYPE_CHECKING:
    from rich.table import Table

_HISTORY = """\
List the recent syncs of a configuration with start, status, rows and duration, from the sync reports. A sync without a
final report either died or is still running."""

_HISTORY_EPILOG = """\
The exit code is 0 for any outcome of the syncs, 1 if the configuration is not valid, the command cannot
read the reports or no sync contained the stream, and 2 for an invalid command line."""

_HEALTH = """\
Report the health of the tables of a configuration, from the sync reports: failures, stalled or slow syncs, unusual
numbers of rows or rejects, small files, many snapshots, and rows that are not yet deduplicated. The output contains a
remedy for every problem."""

_HEALTH_EPILOG = """\
For cron and CI: the exit code is 0 if all tables are healthy, 1 if a table is unhealthy or the command cannot read the
reports, and 2 for an invalid command line."""

_REPORT = """\
Write a page about the syncs of a configuration, from the sync reports. The page is one HTML file without scripts and
external resources."""

_REPORT_EPILOG = """\
The exit code is 0 for any outcome of the syncs, 1 if the configuration is not valid, the command cannot
read the reports or write the page, and 2 for an invalid command line."""

_WIDE = 200

_MAX_SUGGESTIONS = 5
"""The maximum number of stream names that a message suggests if the stream is unknown and no name is similar."""


def run_history(arguments: Sequence[str]) -> int:
    """Run the command `history`, which lists syncs. Return the exit code.

    The exit code is 0, or 1 if the configuration is invalid, the reports cannot be read, or no sync contained the
    stream.
    """
    parser = _parser("history", _HISTORY, _HISTORY_EPILOG)
    parser.add_argument(
        "--last", type=terminal.number, default=20, metavar="N", help="maximum number of syncs (default: 20)"
    )
    parser.add_argument(
        "--stream", metavar="NAME", help="only this stream: namespace.name, or name without a namespace"
    )
    options = parser.parse_args(arguments)
    return terminal.run(options, "read the reports of", "the configuration", lambda config: _history(config, options))


def run_health(arguments: Sequence[str]) -> int:
    """Run the command `health`, which prints problems with tables. Return the exit code.

    The exit code is 0 if all tables are healthy. It is 1 if a table has a problem, if the configuration is invalid, or
    if there are no readable reports.
    """
    options = _parser("health", _HEALTH, _HEALTH_EPILOG).parse_args(arguments)
    return terminal.run(options, "read the reports of", "the configuration", lambda config: _health(config, options))


def run_report(arguments: Sequence[str]) -> int:
    """Run the command `report`, which writes an HTML page. Return the exit code.

    The exit code is 0, or 1 if the configuration is invalid, the reports cannot be read, or the page cannot be written.
    """
    parser = terminal.parser("report", _REPORT, _REPORT_EPILOG)
    terminal.add_days(parser)
    parser.add_argument("--html", required=True, type=Path, metavar="FILE", help="the page to write")
    options = parser.parse_args(arguments)
    return terminal.run(options, "read the reports of", "the configuration", lambda config: _report(config, options))


def _parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser = terminal.parser(name, description, epilog)
    terminal.add_days(parser)
    terminal.add_json(parser)
    return parser


def _report(config: Config, options: argparse.Namespace) -> int:
    from destination_datalake.reports.page import MAX_ERASURES, page

    now, root, s3 = datetime.now(UTC), config.uri(REPORTS_FOLDER), aws_access(config).client("s3")
    runs = [*Reports(s3, root, now).runs(options.days)]
    try:
        erased = erasures(s3, config.uri(DELETIONS_FOLDER), MAX_ERASURES)
    # The caller may lack permission to read the ledger.
    except (s3.exceptions.ClientError, ConfigError, ValueError) as error:
        terminal.note(
            f"The page does not list erasures, because the command cannot read {config.uri(DELETIONS_FOLDER)}/: {error}"
        )
        erased = []
    text = mask_secrets(page(runs, health(runs, now), config.uri() + "/", options.days, now, erased))
    try:
        options.html.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        terminal.note(f"Cannot write {options.html}: {error.strerror}.")
        return 1
    terminal.note(f"Wrote a page about {counted(len(runs), 'sync')} to {options.html.resolve()}")
    return 0


def _history(config: Config, options: argparse.Namespace) -> int:
    streams: set[str] = set()
    matching = _with_stream(_reports(config).runs(options.days), options.stream, streams)
    first = next(matching, None)
    if first is None and streams:
        suggestions = get_close_matches(options.stream, streams) or sorted(streams)[:_MAX_SUGGESTIONS]
        raise ConfigError(
            f"--stream {options.stream}: no sync of the last {options.days} days contained this stream. Write "
            f"namespace.name, or name without a namespace, for example {' or '.join(suggestions)}."
        )
    matching = chain(() if first is None else (first,), matching)
    if options.json:
        # Write one run at a time, because the report lines of a year may not fit in memory.
        separator = "["
        for run in islice(matching, options.last):
            terminal.write(f"{separator}{json.dumps(_as_json(run, options.stream), ensure_ascii=False)}")
            separator = ","
        terminal.write("]" if separator == "," else "[]")
        return 0
    runs = [*islice(matching, options.last)]
    if not runs:
        terminal.note(f"Folder {config.uri(REPORTS_FOLDER)}/ contains no sync reports of the last {options.days} days.")
        return 0
    terminal.write_table(_history_table(runs, options.stream))
    return 0


def _history_table(runs: Sequence[Run], stream: str | None) -> Table:
    table = terminal.table("started (UTC)", "status", "streams", *_RIGHT, "error")
    for run in runs:
        line = next((line for line in run.streams if line.stream == stream), run.sync)
        table.add_row(
            run.sync.start_time[:19],
            terminal.coloured(run.status),
            ""
            if run.sync.streams is None
            else f"{run.sync.streams - (run.sync.streams_failed or 0)}/{run.sync.streams}",
            f"{line.rows_received:,}",
            f"{line.row_count:,}",
            f"{line.rows_rejected + line.values_rejected:,}",
            f"{line.bytes_written / 1e6:,.1f}",
            "" if run.sync.seconds is None else duration(run.sync.seconds),
            terminal.text((line.error or "; ".join(_total_losses(run, stream)))[:_WIDE]),
        )
    return table


def _total_losses(run: Run, stream: str | None) -> Iterator[str]:
    for line in run.streams:
        if line.total_loss and stream in (None, line.stream):
            yield f"{line.stream}: {line.total_loss}"


_RIGHT = ("received", "rows", "rejects", "MB", "took")


def _health(config: Config, options: argparse.Namespace) -> int:
    now = datetime.now(UTC)
    reports = _reports(config, now)
    tables = health([*reports.runs(options.days)], now)
    if not tables:  # Either no sync has run, or the location is wrong. A cron job must not take this for healthy.
        newest = reports.newest_day()
        last = (
            f"The newest report is from {newest}. Check whether syncs still run, or increase --days."
            if newest is not None
            else "Check bucket_name and bucket_prefix, and whether sync_reports is true."
        )
        terminal.note(
            f"Unhealthy: folder {config.uri(REPORTS_FOLDER)}/ contains no sync reports of the last {options.days} "
            f"days. {last}"
        )
    is_unhealthy = not tables or any(table.findings for table in tables)
    if options.json:
        terminal.write(json.dumps(msgspec.to_builtins(tables), ensure_ascii=False))
        return 1 if is_unhealthy else 0
    if not tables:
        return 1
    rows = terminal.table("table", "health", "last successful sync (UTC)", "finding", "remedy")
    for table in tables:
        last = "never" if table.last_finished is None else f"{table.last_finished:%Y-%m-%d %H:%M:%S}"
        if not table.findings:
            usual = "" if table.usual_seconds is None else f", one every {duration(table.usual_seconds)}"
            seen = f"{counted(table.syncs, 'sync')}{usual}"
            rows.add_row(terminal.text(table.table), terminal.coloured("healthy"), last, seen, "")
        for number, finding in enumerate(table.findings):
            name = "" if number else table.table
            rows.add_row(
                terminal.text(name), terminal.coloured(finding.kind), last, terminal.text(finding.seen), finding.advice
            )
    terminal.write_table(rows)
    return 1 if is_unhealthy else 0


def _with_stream(runs: Iterator[Run], stream: str | None, streams: set[str]) -> Iterator[Run]:
    """Yield the runs that include `stream`, or all runs if `stream` is None.

    Also adds the names of the streams of every run to `streams`.
    """
    for run in runs:
        names = {line.stream for line in run.streams}
        streams |= names
        if stream is None or stream in names:
            yield run


def _as_json(run: Run, stream: str | None) -> dict[str, Any]:
    streams = [msgspec.to_builtins(line) for line in run.streams if stream in (None, line.stream)]
    return {**msgspec.to_builtins(run.sync), "status": run.status, "of_streams": streams}


def _reports(config: Config, now: datetime | None = None) -> Reports:
    return Reports(aws_access(config).client("s3"), config.uri(REPORTS_FOLDER), now)
