"""What commands for people share: command line, configuration, Spark on demand, lines and tables of output.

The platform's commands write messages of the protocol instead: see `cli` and `protocol.stdout`.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.errors import explain
from destination_datalake.aws.secrets import mask_secrets, register_secrets
from destination_datalake.config.options import Config
from destination_datalake.config.parsing import read_object
from destination_datalake.errors import ConnectorError, printable
from destination_datalake.termination import Termination

if TYPE_CHECKING:
    from rich.table import Table

    from destination_datalake.spark.engine import Engine

_WIDE = 200

_NUMBERS = ("received", "rows", "rejects", "MB", "took", "files")
"""The headings of columns of numbers."""


def parser(name: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of a command, with the option that all of them have."""
    made = argparse.ArgumentParser(
        prog=f"destination-datalake {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--config", required=True, metavar="FILE", help="the configuration, as for check and write")
    return made


def add_days(made: argparse.ArgumentParser) -> None:
    """Add the option of how far back reports are read."""
    made.add_argument("--days", type=number, default=30, metavar="N", help="of so many days (default: 30)")


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
    """Write a table, as wide as the terminal is."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else _WIDE
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=is_terminal, no_color=not is_terminal).print(rows)
    for line in out.getvalue().splitlines():
        write(line.rstrip())


def write(line: str) -> None:
    """Write a line in UTF-8, whatever the locale."""
    sys.stdout.buffer.write(f"{mask_secrets(line)}\n".encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def note(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.buffer.write(f"{mask_secrets(line)}\n".encode("utf-8", "replace"))
    sys.stderr.buffer.flush()
