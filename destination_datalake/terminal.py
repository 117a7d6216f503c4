"""What commands for people share: command line, configuration, Spark on demand, lines and tables of output.

The platform's commands write messages of the protocol instead: see `cli` and `protocol.stdout`.
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

from destination_datalake.aws.secrets import mask_secrets, register_secrets
from destination_datalake.errors import ConnectorError, printable
from destination_datalake.termination import EXIT_PIPE_CLOSED, Termination

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from destination_datalake.config.options import Config
    from destination_datalake.spark.engine import Engine

_WIDE = 200
"""Columns of output that no terminal shows."""

_NARROW = 20
"""The width of a column of texts below which it is not readable."""

_UNLIMITED = 1_000_000
_INDENT = 4

_NUMBERS = ("received", "rows", "rejects", "MB", "took", "files")
"""The headings of columns of numbers."""


class Parser(argparse.ArgumentParser):
    """A parser that refuses an option with a value that is given twice; argparse takes the last one silently."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)


class _StoreOnce(argparse.Action):
    def __call__(self, _: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *__: object) -> None:
        given: set[str] = namespace.__dict__.setdefault("_given", set())
        if self.dest in given:
            raise argparse.ArgumentError(self, "given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, value)


def parser(name: str, description: str, epilog: str) -> Parser:
    """Return the parser of a command, with the option that all of them have. The epilog ends with the exit codes."""
    made = Parser(
        prog=f"destination-datalake {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--config", required=True, metavar="FILE", help="the configuration, as for check and write")
    return made


def add_days(made: argparse.ArgumentParser) -> None:
    """Add the option of how far back reports are read."""
    made.add_argument("--days", type=number, default=30, metavar="N", help="read reports of the last N days (30)")


def add_json(made: argparse.ArgumentParser) -> None:
    """Add the option that JSON is printed."""
    made.add_argument("--json", action="store_true", help="print JSON")


def number(text: str) -> int:
    """Return a number of 1 or more. Raises ArgumentTypeError (argparse)."""
    found = int(text)
    if found < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return found


@contextmanager
def terminable(spark: Engine | None = None) -> Iterator[Termination]:
    """Yield a handler of SIGTERM; at the end stop `spark`, which was started before the command was."""
    termination = Termination()
    try:
        yield termination
    finally:
        if spark is not None:
            spark.stop()
        termination.close()


@contextmanager
def engine_on_demand(config: Config, spark: Engine | None = None) -> Iterator[Callable[[], Engine]]:
    """Yield a function that returns `spark` or, at its first call, starts the configured one; stop it at the end."""
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
        for each in started:
            each.stop()


def run(asked: argparse.Namespace, doing: str, resource: str, act: Callable[[Config], int]) -> int:
    """Run a command on its configuration; return its exit code, or 1 with what it failed with.

    `doing` and `resource` are as for `explain`.
    """
    from destination_datalake.aws.errors import explain
    from destination_datalake.config.options import Config
    from destination_datalake.config.parsing import read_object

    try:
        config = Config.parse(read_object(asked.config, "configuration"))
        register_secrets(*config.secrets())
        for option in config.unknown_options():
            note(f"Note: {option}")
        return act(config)
    except ConnectorError as error:
        note(error.failure.advice)
    except Exception as error:
        failure = explain(error, doing=doing, resource=resource)
        if failure is None:
            raise
        note(failure.advice)
    return 1


def table(*headings: str) -> Table:
    """Return a table for the terminal, without rows."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    return made


_COLOURS = {"finished": "green", "healthy": "green", "terminated": "yellow", "unfinished": "yellow"}


def coloured(word: str) -> Any:
    """Return a word in the colour of what it says."""
    from rich.text import Text

    return Text(word, _COLOURS.get(word, "bold red"))


def text(name: str) -> Any:
    """Return a text that others have written: no markup of rich, and nothing that a terminal acts on."""
    from rich.text import Text

    return Text(printable(mask_secrets(name)).replace("\n", " "))


def write_table(rows: Table) -> None:
    """Write a table as wide as the terminal is, or as a list if the terminal is too narrow for it."""
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
    """Make each column as narrow as can be read: no word is broken. Return the table's width."""
    unlimited = console.options.update(max_width=_UNLIMITED)
    for column in rows.columns:
        cells = [console.measure(cell, options=unlimited) for cell in (column.header, *column.cells)]
        column.max_width = max(cell.maximum for cell in cells)
        column.width = max(min(_NARROW, column.max_width), *(cell.minimum for cell in cells))
    return console.measure(rows, options=unlimited).minimum


def _widen(rows: Table, spare: int) -> None:
    """Divide the spare width among the columns that can use it. Rich would shrink the widest, and break words."""
    wanted = sorted(((column.max_width or 0) - (column.width or 0), place) for place, column in enumerate(rows.columns))
    for left, (most, place) in zip(range(len(wanted), 0, -1), wanted, strict=True):
        more = min(most, spare // left)
        rows.columns[place].width = (rows.columns[place].width or 0) + more
        spare -= more


def _print_list(rows: Table, console: Console) -> None:
    """Print each row as a few lines: its first cell, then the other cells, each after its heading."""
    from rich.padding import Padding
    from rich.text import Text

    headings = [str(column.header) for column in rows.columns]
    for cells in zip(*(column.cells for column in rows.columns), strict=True):
        texts = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
        line, *named = [
            Text.assemble(f"{headings[place]}: " if place else "", text)
            for place, text in enumerate(texts)
            if text.plain or not place
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
    """Write a line to stdout."""
    put(sys.stdout, mask_secrets(line))


def note(line: str) -> None:
    """Write a line to stderr."""
    put(sys.stderr, mask_secrets(line))


def put(out: TextIO, line: str) -> None:
    """Write a line in UTF-8, whatever the locale, with its secrets.

    Raises SystemExit if the reader is gone, such as `head`: what a command prints ends as SIGPIPE would end it.
    """
    try:
        out.buffer.write(f"{line}\n".encode("utf-8", "replace"))
        out.buffer.flush()
    except BrokenPipeError:
        leave_pipe(out.fileno())


def leave_pipe(descriptor: int) -> NoReturn:
    """End the command as SIGPIPE would, after what it holds is released; Python writes what is left to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    raise SystemExit(EXIT_PIPE_CLOSED)
