"""`destination-datalake maintain`: all maintenance of a configuration's Iceberg tables, now."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.aws.secrets import mask_secrets, register_secrets
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.parsing import read_object, too_deep
from destination_datalake.config.tables import Retention
from destination_datalake.errors import ConnectorError
from destination_datalake.maintenance.finding import TableFinder
from destination_datalake.maintenance.report import StepReport
from destination_datalake.maintenance.steps import Maintainer
from destination_datalake.termination import Termination

if TYPE_CHECKING:
    from destination_datalake.files.plan import CompactResult, CompactTask
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.table import TableName

_DESCRIPTION = """\
Maintain the Iceberg tables that a configuration writes to: rewrite small files as fewer large ones, expire old
snapshots and delete the files that only they had, and remove orphans, which are files that nothing refers to. Readers
and running syncs are not disturbed; whoever interrupts it loses nothing, and can run it again."""

_EPILOG = """\
Days and numbers are those of the option maintenance, or its defaults. There is a line for each table and step.

  destination-datalake maintain --config config.json --dry-run
  destination-datalake maintain --config config.json --stream shop.orders

The exit code is 0, 1 if the configuration is not valid or a step failed, 2 for a wrong command line, and 143 after
SIGTERM."""

EXIT_TERMINATED = 143


def run_maintain(arguments: Sequence[str]) -> int:
    """Run the command with these arguments (without its name); return the exit code: 0, 1 or 143.

    Raises SystemExit with code 2 for a wrong command line, and with 0 for `--help`.
    """
    asked = _parser().parse_args(arguments)
    termination = Termination()
    try:
        return _maintain(asked, termination)
    except ConnectorError as error:
        _note(error.failure.advice)
    except Exception as error:
        failure = explain(error, doing="maintain", resource="the tables")
        if failure is None:
            raise
        _note(failure.advice)
    finally:
        termination.close()
    return 1


def _maintain(asked: argparse.Namespace, termination: Termination) -> int:
    config = _config(asked.config)
    register_secrets(*config.secrets())
    for option in config.unknown_options():
        _note(f"Note: {option}")
    if config.maintenance.mode == "glue":
        _note("Note: maintenance.mode is glue, so Glue's optimizers do the same about daily.")
    access = aws_access(config)
    finder = TableFinder(config, access.client("glue"))
    tables = finder.tables(asked.stream)
    for note in finder.notes:
        _note(f"Note: {note}")
    if not tables:
        _note("There are no Iceberg tables of this configuration.")
    options = config.maintenance if isinstance(config.maintenance, Retention) else Retention()
    failed = False
    with _spark_on_demand(config) as spark:
        maintainer = Maintainer(
            options,
            config.target_file_size_mb * 1024 * 1024,
            access,
            spark.compact,
            lambda: not termination.requested,
            asked.dry_run,
        )
        for table in tables:
            for report in _steps(maintainer, table):
                if report.failure is not None:
                    failed = True
                    _note(report.failure.detail)
                for line in report.lines():
                    _write(line)
    if termination.requested:
        return EXIT_TERMINATED
    return 1 if failed else 0


def _steps(maintainer: Maintainer, table: TableName) -> Iterator[StepReport]:
    yield maintainer.compact(table)
    yield from maintainer.remove(table)


class _Spark:
    """The configured Spark, started when there is something to compact."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.engine: Engine | None = None

    def compact(self, tasks: Sequence[CompactTask]) -> Sequence[CompactResult]:
        """Compact files on the executors."""
        from destination_datalake.files.compact import compact
        from destination_datalake.spark.engine import start_engine

        if self.engine is None:
            self.engine = start_engine(self._config)
        return self.engine.run(compact, tasks)


@contextmanager
def _spark_on_demand(config: Config) -> Iterator[_Spark]:
    spark = _Spark(config)
    try:
        yield spark
    finally:
        if spark.engine is not None:
            spark.engine.stop()


def _config(path: str) -> Config:
    options = read_object(path, "configuration")
    try:
        return Config.parse(options)
    except RecursionError:
        raise too_deep(path, "configuration") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="destination-datalake maintain",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="the configuration, as for check and write")
    parser.add_argument(
        "--stream",
        metavar="NAME",
        action="append",
        default=[],
        help="a stream as namespace.name, or as name if it has no namespace: only its table is maintained; may be "
        "repeated",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="change nothing; print what would be done, and each object to be deleted"
    )
    return parser


def _write(line: str) -> None:
    """Write a line in UTF-8, whatever the locale, at once: a table may take long."""
    sys.stdout.buffer.write(f"{mask_secrets(line)}\n".encode())
    sys.stdout.buffer.flush()


def _note(line: str) -> None:
    sys.stderr.buffer.write(f"{mask_secrets(line)}\n".encode())
    sys.stderr.buffer.flush()
