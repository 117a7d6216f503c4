"""The commands that read reports: `history`, `health` and `report`."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from destination_datalake.aws.errors import explain
from destination_datalake.aws.secrets import mask_secrets, register_secrets
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.parsing import read_object
from destination_datalake.config.tables import REPORTS_FOLDER
from destination_datalake.errors import ConnectorError, printable
from destination_datalake.reports.health import duration, health
from destination_datalake.reports.reading import Reports, Run

if TYPE_CHECKING:
    from rich.table import Table

_HISTORY = """\
Show the last syncs of a configuration, by their reports: when, how they ended, how many rows, how long. A sync without
an end has died, or is running."""

_HEALTH = """\
Tell of each table of a configuration whether it is healthy, by the reports of its syncs: failures, stalled or slow
syncs, unusual numbers of rows or rejects, small files, snapshots and rows that wait for their deduplication; and what
to do. The exit code is 1 if something is unhealthy, so that cron and CI can use it."""

_REPORT = """\
Write a page that shows the syncs of a configuration, by their reports: one HTML file without scripts, which needs
nothing from elsewhere."""

_WIDE = 200


def run_history(arguments: Sequence[str]) -> int:
    """Run `history` with these arguments; return the exit code: 0, or 1 if the reports cannot be read."""
    parser = _parser("history", _HISTORY)
    parser.add_argument("--last", type=_number, default=20, metavar="N", help="so many syncs at most (default: 20)")
    parser.add_argument("--stream", metavar="NAME", help="only this stream, as namespace.name, or name without one")
    asked = parser.parse_args(arguments)
    return _run(asked, "read the reports of", lambda config: _history(config, asked))


def run_health(arguments: Sequence[str]) -> int:
    """Run `health` with these arguments; return the exit code: 0, or 1 if something is unhealthy or cannot be read."""
    asked = _parser("health", _HEALTH).parse_args(arguments)
    return _run(asked, "read the reports of", lambda config: _health(config, asked))


def run_report(arguments: Sequence[str]) -> int:
    """Run `report` with these arguments; return the exit code: 0, or 1 if the page cannot be written."""
    parser = _parser("report", _REPORT, json=False)
    parser.add_argument("--html", required=True, type=Path, metavar="FILE", help="the page to write")
    asked = parser.parse_args(arguments)
    return _run(asked, "read the reports of", lambda config: _report(config, asked))


def _report(config: Config, asked: argparse.Namespace) -> int:
    from destination_datalake.reports.page import page

    now, place = datetime.now(UTC), config.uri(REPORTS_FOLDER)
    runs = Reports(aws_access(config).client("s3"), place, now).runs(asked.days)
    text = mask_secrets(page(runs, health(runs, now), config.uri() + "/", asked.days, now))
    try:
        asked.html.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        _note(f"Cannot write {asked.html}: {error.strerror}.")
        return 1
    _note(f"The page of {len(runs)} syncs is {asked.html.resolve()}")
    return 0


def _history(config: Config, asked: argparse.Namespace) -> int:
    each = (run for run in _reports(config).each(asked.days) if _concerns(run, asked.stream))
    if asked.json:
        # One by one: a year of syncs has more lines than there is memory for.
        separator = "["
        for run in islice(each, asked.last):
            _write(f"{separator}{json.dumps(_as_json(run, asked.stream), ensure_ascii=False)}")
            separator = ","
        _write("]" if separator == "," else "[]")
        return 0
    runs = [*islice(each, asked.last)]
    if not runs:
        _note(f"There are no reports of the last {asked.days} days under {config.uri(REPORTS_FOLDER)}/.")
        return 0
    _write_table(_history_table(runs, asked.stream))
    return 0


def _history_table(runs: Sequence[Run], stream: str | None) -> Table:
    table = _table("started (UTC)", "status", "streams", *_RIGHT, "what failed")
    for run in runs:
        line = next((each for each in run.streams if each.stream == stream), run.sync)
        table.add_row(
            run.sync.start_time[:19],
            _coloured(run.status),
            ""
            if run.sync.streams is None
            else f"{run.sync.streams - (run.sync.streams_failed or 0)}/{run.sync.streams}",
            f"{line.rows_received:,}",
            f"{line.row_count:,}",
            f"{line.rows_rejected + line.values_rejected:,}",
            f"{line.bytes_written / 1e6:,.1f}",
            "" if run.sync.seconds is None else duration(run.sync.seconds),
            _text((line.error or "")[:_WIDE]),
        )
    return table


_RIGHT = ("received", "rows", "rejects", "MB", "took")


def _health(config: Config, asked: argparse.Namespace) -> int:
    now = datetime.now(UTC)
    found = health(Reports(aws_access(config).client("s3"), config.uri(REPORTS_FOLDER), now).runs(asked.days), now)
    unhealthy = any(each.findings for each in found)
    if asked.json:
        _write(json.dumps(msgspec.to_builtins(found), ensure_ascii=False))
        return 1 if unhealthy else 0
    if not found:
        _note(f"There are no reports of the last {asked.days} days under {config.uri(REPORTS_FOLDER)}/.")
        return 0
    table = _table("table", "health", "last good sync (UTC)", "what is seen", "what to do")
    for each in found:
        last = "never" if each.last_finished is None else f"{each.last_finished:%Y-%m-%d %H:%M:%S}"
        if not each.findings:
            usual = "" if each.usual_seconds is None else f", one every {duration(each.usual_seconds)}"
            seen = f"{each.syncs} sync{'' if each.syncs == 1 else 's'}{usual}"
            table.add_row(_text(each.table), _coloured("healthy"), last, seen, "")
        for number, finding in enumerate(each.findings):
            name = "" if number else each.table
            table.add_row(_text(name), _coloured(finding.kind), last, _text(finding.seen), finding.advice)
    _write_table(table)
    return 1 if unhealthy else 0


def _concerns(run: Run, stream: str | None) -> bool:
    return stream is None or any(line.stream == stream for line in run.streams)


def _as_json(run: Run, stream: str | None) -> dict[str, Any]:
    streams = [msgspec.to_builtins(line) for line in run.streams if stream in (None, line.stream)]
    return {**msgspec.to_builtins(run.sync), "status": run.status, "of_streams": streams}


def _reports(config: Config) -> Reports:
    return Reports(aws_access(config).client("s3"), config.uri(REPORTS_FOLDER))


# What all commands have in common


def _parser(name: str, description: str, *, json: bool = True) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"destination-datalake {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="the configuration, as for check and write")
    parser.add_argument("--days", type=_number, default=30, metavar="N", help="of so many days (default: 30)")
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _run(asked: argparse.Namespace, doing: str, act: Callable[[Config], int]) -> int:
    """Run a command on its configuration; return its exit code, or 1 if what it needs cannot be read."""
    try:
        config = Config.parse(read_object(asked.config, "configuration"))
        register_secrets(*config.secrets())
        for option in config.unknown_options():
            _note(f"Note: {option}")
        return act(config)
    except ConnectorError as error:
        _note(error.failure.advice)
    except Exception as error:
        failure = explain(error, doing=doing, resource="the configuration")
        if failure is None:
            raise
        _note(failure.advice)
    return 1


def _table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _RIGHT else "left", overflow="fold")
    return table


_COLOURS = {"finished": "green", "healthy": "green", "terminated": "yellow", "unfinished": "yellow"}


def _coloured(word: str) -> Any:
    from rich.text import Text

    return Text(word, _COLOURS.get(word, "bold red"))


def _text(name: str) -> Any:
    """Return a text that others have written: no markup of rich, and nothing that a terminal acts on."""
    from rich.text import Text

    return Text(printable(mask_secrets(name)).replace("\n", " "))


def _write_table(table: Table) -> None:
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else _WIDE
    text = io.StringIO()
    Console(file=text, width=width, force_terminal=is_terminal, no_color=not is_terminal).print(table)
    _write_lines(line.rstrip() for line in text.getvalue().splitlines())


def _write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        _write(line)


def _write(line: str) -> None:
    """Write a line in UTF-8, whatever the locale."""
    sys.stdout.buffer.write(f"{mask_secrets(line)}\n".encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _note(line: str) -> None:
    sys.stderr.buffer.write(f"{mask_secrets(line)}\n".encode("utf-8", "replace"))
    sys.stderr.buffer.flush()
