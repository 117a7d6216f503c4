"""The commands that read reports: `history`, `health` and `report`."""

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
from destination_datalake.aws.secrets import mask_secrets
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.tables import REPORTS_FOLDER
from destination_datalake.errors import ConfigError, counted
from destination_datalake.files.suppression import DELETIONS_FOLDER
from destination_datalake.reports.health import duration, health
from destination_datalake.reports.reading import Reports, Run, erasures

if TYPE_CHECKING:
    from rich.table import Table

_HISTORY = """\
Show the last syncs of a configuration, by their reports: when, how they ended, how many rows, how long. A sync without
an end has died, or is running."""

_HISTORY_EPILOG = """\
The exit code is 0, however the syncs ended; 1 if the configuration is not valid, the reports cannot be read or no sync
had the stream; 2 for a wrong command line."""

_HEALTH = """\
Report the health of each table of a configuration, by the reports of its syncs: failures, stalled or slow syncs,
unusual numbers of rows or rejects, small files, snapshots and rows that wait for their deduplication; and what to
do."""

_HEALTH_EPILOG = """\
For cron and CI: the exit code is 0 if all is healthy, 1 if something is unhealthy or cannot be read, 2 for a wrong
command line."""

_REPORT = """\
Write a page that shows the syncs of a configuration, by their reports: one HTML file without scripts, which needs
nothing from elsewhere."""

_REPORT_EPILOG = """\
The exit code is 0, however the syncs ended; 1 if the configuration is not valid, the reports cannot be read or the page
cannot be written; 2 for a wrong command line."""

_WIDE = 200

_NAMED = 5
"""Streams that a message names: those whose names are similar, or some."""


def run_history(arguments: Sequence[str]) -> int:
    """Run `history` with these arguments; return the exit code: 0, or 1 if the reports cannot be read."""
    parser = _parser("history", _HISTORY, _HISTORY_EPILOG)
    parser.add_argument(
        "--last", type=terminal.number, default=20, metavar="N", help="maximum number of syncs (default: 20)"
    )
    parser.add_argument("--stream", metavar="NAME", help="only this stream, as namespace.name, or name without one")
    asked = parser.parse_args(arguments)
    return terminal.run(asked, "read the reports of", "the configuration", lambda config: _history(config, asked))


def run_health(arguments: Sequence[str]) -> int:
    """Run `health` with these arguments; return the exit code: 0, or 1 if something is unhealthy or cannot be read."""
    asked = _parser("health", _HEALTH, _HEALTH_EPILOG).parse_args(arguments)
    return terminal.run(asked, "read the reports of", "the configuration", lambda config: _health(config, asked))


def run_report(arguments: Sequence[str]) -> int:
    """Run `report` with these arguments; return the exit code: 0, or 1 if the page cannot be written."""
    parser = terminal.parser("report", _REPORT, _REPORT_EPILOG)
    terminal.add_days(parser)
    parser.add_argument("--html", required=True, type=Path, metavar="FILE", help="the page to write")
    asked = parser.parse_args(arguments)
    return terminal.run(asked, "read the reports of", "the configuration", lambda config: _report(config, asked))


def _parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser = terminal.parser(name, description, epilog)
    terminal.add_days(parser)
    terminal.add_json(parser)
    return parser


def _report(config: Config, asked: argparse.Namespace) -> int:
    from destination_datalake.reports.page import MOST_ERASURES, page

    now, place, s3 = datetime.now(UTC), config.uri(REPORTS_FOLDER), aws_access(config).client("s3")
    runs = [*Reports(s3, place, now).each(asked.days)]
    try:
        erased = erasures(s3, config.uri(DELETIONS_FOLDER), MOST_ERASURES)
    except (s3.exceptions.ClientError, ValueError) as error:  # The ledger may be for other eyes.
        terminal.note(f"The page has no erasures, as {config.uri(DELETIONS_FOLDER)}/ cannot be read: {error}")
        erased = []
    text = mask_secrets(page(runs, health(runs, now), config.uri() + "/", asked.days, now, erased))
    try:
        asked.html.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        terminal.note(f"Cannot write {asked.html}: {error.strerror}.")
        return 1
    terminal.note(f"The page of {len(runs)} syncs is {asked.html.resolve()}")
    return 0


def _history(config: Config, asked: argparse.Namespace) -> int:
    streams: set[str] = set()
    each = _of_stream(_reports(config).each(asked.days), asked.stream, streams)
    first = next(each, None)
    if first is None and streams:
        meant = get_close_matches(asked.stream, streams) or sorted(streams)[:_NAMED]
        raise ConfigError(
            f"--stream {asked.stream}: no sync of the last {asked.days} days had this stream. Name it as "
            f"namespace.name, or as name if it has no namespace; for example {' or '.join(meant)}."
        )
    each = chain(() if first is None else (first,), each)
    if asked.json:
        # One by one: a year of syncs has more lines than there is memory for.
        separator = "["
        for run in islice(each, asked.last):
            terminal.write(f"{separator}{json.dumps(_as_json(run, asked.stream), ensure_ascii=False)}")
            separator = ","
        terminal.write("]" if separator == "," else "[]")
        return 0
    runs = [*islice(each, asked.last)]
    if not runs:
        terminal.note(f"There are no reports of the last {asked.days} days under {config.uri(REPORTS_FOLDER)}/.")
        return 0
    terminal.write_table(_history_table(runs, asked.stream))
    return 0


def _history_table(runs: Sequence[Run], stream: str | None) -> Table:
    table = terminal.table("started (UTC)", "status", "streams", *_RIGHT, "what failed")
    for run in runs:
        line = next((each for each in run.streams if each.stream == stream), run.sync)
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
            terminal.text((line.error or "; ".join(_lost(run, stream)))[:_WIDE]),
        )
    return table


def _lost(run: Run, stream: str | None) -> Iterator[str]:
    for line in run.streams:
        if line.total_loss and stream in (None, line.stream):
            yield f"{line.stream}: {line.total_loss}"


_RIGHT = ("received", "rows", "rejects", "MB", "took")


def _health(config: Config, asked: argparse.Namespace) -> int:
    now = datetime.now(UTC)
    reports = _reports(config, now)
    found = health([*reports.each(asked.days)], now)
    if not found:  # No sync has run, or the command looks in the wrong place: cron must not take that for health.
        newest = reports.newest_day()
        last = (
            f"The newest report is of {newest}: see whether the syncs still run, or set --days."
            if newest is not None
            else "See whether bucket_name and bucket_prefix are those of the syncs, and sync_reports is true."
        )
        terminal.note(
            f"Unhealthy: there are no reports of the last {asked.days} days under {config.uri(REPORTS_FOLDER)}/. {last}"
        )
    unhealthy = not found or any(each.findings for each in found)
    if asked.json:
        terminal.write(json.dumps(msgspec.to_builtins(found), ensure_ascii=False))
        return 1 if unhealthy else 0
    if not found:
        return 1
    table = terminal.table("table", "health", "last good sync (UTC)", "what is seen", "what to do")
    for each in found:
        last = "never" if each.last_finished is None else f"{each.last_finished:%Y-%m-%d %H:%M:%S}"
        if not each.findings:
            usual = "" if each.usual_seconds is None else f", one every {duration(each.usual_seconds)}"
            seen = f"{counted(each.syncs, 'sync')}{usual}"
            table.add_row(terminal.text(each.table), terminal.coloured("healthy"), last, seen, "")
        for number, finding in enumerate(each.findings):
            name = "" if number else each.table
            table.add_row(
                terminal.text(name), terminal.coloured(finding.kind), last, terminal.text(finding.seen), finding.advice
            )
    terminal.write_table(table)
    return 1 if unhealthy else 0


def _of_stream(runs: Iterator[Run], stream: str | None, streams: set[str]) -> Iterator[Run]:
    """Yield the runs that had the stream, or all if it is None; add the streams of all runs to `streams`."""
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
