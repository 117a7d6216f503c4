"""`destination-datalake replay`: make a stream's table again from its archive."""

from __future__ import annotations

import argparse
import re
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from destination_datalake import terminal
from destination_datalake.archive.history import History, read_history
from destination_datalake.archive.objects import ARCHIVE_FOLDER, table_folder
from destination_datalake.config.options import Config, aws_access
from destination_datalake.errors import ConfigError
from destination_datalake.files.suppression import DELETIONS_FOLDER, unfinished
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.replay.replayer import Replayer, Source
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.naming import REBUILD_SUFFIX, REPLAY_SUFFIX, TableNaming
from destination_datalake.tables.table import TableName
from destination_datalake.termination import EXIT_TERMINATED, Termination

if TYPE_CHECKING:
    from destination_datalake.spark.engine import Engine

_DESCRIPTION = """\
Make a stream's table again from the archive of its records (option raw_archive). Every sync is lived through once more,
in order, with its own catalog, mode, generation and key: rows, columns and ids come out as they did. No state is read
or written. It can be interrupted and run again, and goes on where it was."""

_EPILOG = """\
Without --replace the rows go to another table, which may be queried, compared, and dropped at any time. With --replace
readers see the old content until the new one takes its place, in one step.

  destination-datalake replay --config config.json --stream shop.orders --dry-run
  destination-datalake replay --config config.json --stream shop.orders
  destination-datalake replay --config config.json --stream shop.orders --replace

The exit code is 0, 1 if the configuration is not valid or the replay failed, 2 for a wrong command line, and 143 after
SIGTERM."""

_TABLE = re.compile(r"[a-z0-9_]{1,255}")


def run_replay(arguments: Sequence[str], spark: Engine | None = None) -> int:
    """Run the command with these arguments (without its name); return the exit code: 0, 1 or 143.

    Uses `spark`, and starts its own if it is given none but needs one. Raises SystemExit with code 2 for a wrong
    command line, and with 0 for `--help`.
    """
    with terminal.terminable(spark) as termination:
        asked = _parser().parse_args(arguments)
        archive = f"the archive of stream {asked.stream}"
        return terminal.run(asked, "replay", archive, lambda config: _replay(config, asked, termination, spark))


def _replay(config: Config, asked: argparse.Namespace, termination: Termination, spark: Engine | None) -> int:
    if asked.replace and config.catalog.limits.assigns_locations:
        raise ConfigError(
            "--replace is not for tables in a table bucket: their files must lie where Amazon S3 Tables puts them. "
            "Replay into another table, and read that one."
        )
    access = aws_access(config)
    name, history = _archive_of(asked.stream, config)
    suffix = REBUILD_SUFFIX if asked.replace else REPLAY_SUFFIX
    made = TableName(name.database, asked.into or f"{name.table}{suffix}")
    if made == name or not _TABLE.fullmatch(made.table):
        raise ConfigError(f"--into {asked.into}: it must be another table's name, of a to z, 0 to 9 and _.")
    if asked.replace and not asked.dry_run:
        _require_no_erasure(name, config)
    folder = table_folder(config.uri(ARCHIVE_FOLDER), *name)
    with terminal.engine_on_demand(config, spark) as engine:
        source = Source(config, access, catalog_of(config, access), name, folder)
        replayer = Replayer(source, made, engine, terminal.write, lambda: termination.requested)
        if asked.dry_run:
            plan = replayer.describe(history)
            if asked.accept_gaps:
                replayer.describe_difference(plan)
            return 0
        started = time.monotonic()
        finished = replayer.run(history, uuid.uuid4().hex[:12], replace=asked.replace, accept_gaps=asked.accept_gaps)
        terminal.write(f"{replayer.summary} in {time.monotonic() - started:.1f} s.")
    return 0 if finished else EXIT_TERMINATED


def _require_no_erasure(name: TableName, config: Config) -> None:
    """Raise ConfigError if an erasure has not ended: the table may have rows that the replay makes no more."""
    ledger = config.uri(DELETIONS_FOLDER)
    if begun := unfinished(ledger, str(name), aws_access(config).client("s3")):
        raise ConfigError(
            f"Rows are being erased from table {name}: `delete-rows` has not ended its request {begun[0]}. "
            "Run the same `delete-rows` command again, then this one. If its file of ids is lost, make a new one, or "
            f"delete {ledger}/{begun[0]}/. Nothing was replaced."
        )


def _archive_of(stream: str, config: Config) -> tuple[TableName, History]:
    """Return a stream's table and its archive. Raises ConfigError if it has none."""
    access = aws_access(config)
    for name, found in TableNaming.of(config).candidates(stream).items():
        history = read_history(table_folder(config.uri(ARCHIVE_FOLDER), *name), access)
        if any(StreamId(each.sync.namespace, each.sync.stream) == found for each in history.syncs):
            return name, history
    raise ConfigError(
        f"--stream {stream}: there is no archive of it under {config.uri(ARCHIVE_FOLDER)}/. Name it as namespace.name, "
        "or as name if it has no namespace. Syncs archive what they receive if raw_archive.enabled is true."
    )


def _parser() -> argparse.ArgumentParser:
    parser = terminal.parser("replay", _DESCRIPTION, _EPILOG)
    parser.add_argument(
        "--stream", required=True, metavar="NAME", help="the stream as namespace.name, or as name if it has none"
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--into",
        metavar="TABLE",
        help="the table to make, in the database of the stream's table; the default is its name and __replay",
    )
    target.add_argument("--replace", action="store_true", help="put the rows in the place of the table's content")
    parser.add_argument(
        "--accept-gaps",
        action="store_true",
        help="with --replace: replace the rows even if the table then lacks some, or has deleted ones again; with "
        "--dry-run: print how many",
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing; print what would be replayed")
    return parser
