"""Functions for the interactive commands: parse options, read the configuration, start Spark on demand, print tables.

The commands that Airbyte runs write protocol messages instead (`cli`, `protocol.stdout`).
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from destination_datalake.aws.access import mask_secrets, register_secrets
from destination_datalake.errors import ConnectorError, printable
from destination_datalake.termination import EXIT_PIPE_CLOSED, Termination

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from destination_datalake.config.options import Config
    from destination_datalake.spark.engine import Engine

_WIDE = 200
"""The width, in characters, that output is fitted to if stdout is not a terminal."""

_NARROW = 20
"""The smallest width, in characters, to which columns of long text are reduced."""

_UNLIMITED = 1_000_000
_INDENT = 4

_NUMBERS = ("received", "rows", "rejects", "MB", "took", "files")
"""Headings of columns that contain numbers and are right-aligned."""


class Parser(argparse.ArgumentParser):
    """An argument parser that rejects an option set twice. argparse would silently use the last value."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # argparse looks up `add_argument`'s action under these names: None stands for an option without `action`.
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)


class _StoreOnce(argparse.Action):
    def __call__(self, _: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *__: object) -> None:
        parsed: set[str] = namespace.__dict__.setdefault("_parsed", set())
        if self.dest in parsed:
            raise argparse.ArgumentError(self, "is set twice")
        parsed.add(self.dest)
        setattr(namespace, self.dest, value)


def parser(name: str, description: str, epilog: str) -> Parser:
    """Return a command's parser, which already has the option --config. `epilog` should end with the exit codes."""
    command_parser = Parser(
        prog=f"destination-datalake {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_parser.add_argument(
        "--config", required=True, metavar="FILE", help="JSON file with the configuration, as for check and write"
    )
    return command_parser


def add_days(command_parser: argparse.ArgumentParser) -> None:
    """Add the option --days: read the reports of the last N days. The default is 30."""
    command_parser.add_argument(
        "--days", type=number, default=30, metavar="N", help="read the reports of the last N days (default: 30)"
    )


def add_json(command_parser: argparse.ArgumentParser) -> None:
    """Add the flag --json, which requests output as JSON."""
    command_parser.add_argument("--json", action="store_true", help="print JSON")


def number(text: str) -> int:
    """Parse an integer of at least 1. Raises argparse.ArgumentTypeError for 0 and negative numbers."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


@contextmanager
def terminable(spark: Engine | None = None) -> Iterator[Termination]:
    """Handle SIGTERM during the `with` block, and yield the handler.

    At the end of the block, restores the previous handler. If `spark` is given, also stops Spark, even if Spark is
    still starting.
    """
    termination = Termination()
    try:
        yield termination
    finally:
        if spark is not None:
            spark.stop()
        termination.close()


@contextmanager
def engine_on_demand(config: Config, spark: Engine | None = None) -> Iterator[Callable[[], Engine]]:
    """Yield a function that returns the Spark engine: `spark` if given, otherwise a new engine.

    The first call starts the new engine, and the end of the `with` block stops the new engine. `spark` is not stopped.
    """
    started: list[Engine] = []

    def engine() -> Engine:
        from destination_datalake.spark.engine import start_engine

        if spark is not None:
            return spark
        if not started:
            started.append(start_engine(config))
        return started[0]

    try:
        yield engine
    finally:
        for own_engine in started:
            own_engine.stop()


def run(options: argparse.Namespace, doing: str, resource: str, command: Callable[[Config], int]) -> int:
    """Read the configuration of an interactive command, run `command` with it, and return the exit code.

    If the command fails with a known error, prints a message and returns 1. `doing` and `resource` are parts of the
    message "Cannot {doing} {resource}" (see `aws.errors.explain`). Raises unknown errors.
    """
    from destination_datalake.aws.errors import explain
    from destination_datalake.config.options import Config
    from destination_datalake.config.parsing import read_object
    from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict

    try:
        config = Config.parse(read_object(options.config, "configuration"))
        register_secrets(*config.secrets())
        for option in config.unknown_options():
            note(f"Note: {option}")
        return command(config)
    except ConnectorError as error:
        note(error.failure.advice)
    except (TableBusy, TableConflict, CommitStateUnknown) as error:
        note(str(error))
    except Exception as error:
        failure = explain(error, doing=doing, resource=resource)
        if failure is None:
            raise
        note(failure.advice)
    return 1


def table(*headings: str) -> Table:
    """Return an empty Rich table with these headings. Columns of numbers are right-aligned."""
    from rich import box
    from rich.table import Table

    empty = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        empty.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    return empty


_COLOURS = {"finished": "green", "healthy": "green", "terminated": "yellow", "unfinished": "yellow"}


def coloured(word: str) -> Any:
    """Return `word`, an outcome such as "finished", as a Rich text in the outcome's colour."""
    from rich.text import Text

    return Text(word, _COLOURS.get(word, "bold red"))


def text(name: str) -> Any:
    """Return external text in a form that is safe to print on a terminal.

    Escapes control characters, masks secrets, replaces line feeds by spaces, and does not interpret Rich markup.
    """
    from rich.text import Text

    return Text(printable(mask_secrets(name)).replace("\n", " "))


def write_table(rows: Table) -> None:
    """Print a table, fitted to the terminal. If the terminal is too narrow for the table, print a list."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else _WIDE
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=is_terminal, no_color=not is_terminal)
    needed = _narrow(rows, console)
    if needed > width and is_terminal:
        _print_list(rows, console)
    else:
        console.width = max(width, needed)
        _widen(rows, console.width - needed)
        console.print(rows)
    for line in out.getvalue().splitlines():
        write(line.rstrip())


def _narrow(rows: Table, console: Console) -> int:
    """Set each column to the smallest width that breaks no word. Return the resulting width of the table."""
    unlimited = console.options.update(max_width=_UNLIMITED)
    for column in rows.columns:
        cells = [console.measure(cell, options=unlimited) for cell in (column.header, *column.cells)]
        column.max_width = max(cell.maximum for cell in cells)
        column.width = max(min(_NARROW, column.max_width), *(cell.minimum for cell in cells))
    return console.measure(rows, options=unlimited).minimum


def _widen(rows: Table, spare: int) -> None:
    """Distribute `spare` characters among the columns that are narrower than their content.

    Rich would instead shrink the widest column and break words.
    """
    useful = sorted(((column.max_width or 0) - (column.width or 0), index) for index, column in enumerate(rows.columns))
    for remaining, (maximum, index) in zip(range(len(useful), 0, -1), useful, strict=True):
        share = min(maximum, spare // remaining)
        rows.columns[index].width = (rows.columns[index].width or 0) + share
        spare -= share


def _print_list(rows: Table, console: Console) -> None:
    """Print each row as a list: the first cell, then the other cells after their headings."""
    from rich.padding import Padding
    from rich.text import Text

    headings = [str(column.header) for column in rows.columns]
    for cells in zip(*(column.cells for column in rows.columns), strict=True):
        texts = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
        line, *named = [
            Text.assemble(f"{headings[index]}: " if index else "", text)
            for index, text in enumerate(texts)
            if text.plain or not index
        ]
        indent = 0
        for part in named:
            if line.cell_len + 2 + part.cell_len > console.width - indent:
                console.print(Padding(line, (0, 0, 0, indent)))
                line, indent = part, _INDENT
            else:
                line = Text.assemble(line, "  " if line.plain else "", part)
        console.print(Padding(line, (0, 0, 0, indent)))


def write(line: str) -> None:
    """Write a line to stdout, with each secret replaced by `****`."""
    put(sys.stdout, mask_secrets(line))


def note(line: str) -> None:
    """Write a line to stderr, with each secret replaced by `****`."""
    put(sys.stderr, mask_secrets(line))


def put(out: TextIO, line: str) -> None:
    """Write a line to `out` in UTF-8, whatever the locale. This function does not mask secrets.

    Raises SystemExit with code 141 if the reader, such as `head`, has closed the pipe.
    """
    try:
        # Write bytes: the encoding of `out` depends on the locale, and may not contain all characters.
        out.buffer.write(f"{line}\n".encode("utf-8", "replace"))
        out.buffer.flush()
    except BrokenPipeError:
        leave_pipe(out.fileno())


def leave_pipe(descriptor: int) -> NoReturn:
    """Redirect `descriptor` to /dev/null, and raise SystemExit with code 141.

    Python flushes its buffers when it exits. Without the redirection, this flush would fail on the closed pipe.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    raise SystemExit(EXIT_PIPE_CLOSED)
