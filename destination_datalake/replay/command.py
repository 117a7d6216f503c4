"""The command line of `destination-datalake replay`, which rebuilds a table from its archive."""

from __future__ import annotations

import argparse
import re
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from destination_datalake import terminal
from destination_datalake.archive.objects import ARCHIVE_FOLDER, table_folder
from destination_datalake.archive.plan import History, read_history
from destination_datalake.config.options import Config, aws_access
from destination_datalake.errors import ConfigError
from destination_datalake.files.suppression import DELETIONS_FOLDER, unfinished
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.replay.replayer import Replayer, ReplaySource
from destination_datalake.schema.names import MAX_BYTES
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.naming import REBUILD_SUFFIX, REPLAY_SUFFIX, TableNaming
from destination_datalake.tables.table import TableName
from destination_datalake.termination import EXIT_TERMINATED, Termination

if TYPE_CHECKING:
    from destination_datalake.spark.engine import Engine

_DESCRIPTION = """\
Rebuild a stream's table from the archive of its records (option raw_archive). The command re-runs every archived sync
in order, with that sync's catalog, mode, generation and key. It produces the same rows, columns and IDs. It does not
read or write states. After an interruption, run the command again: it resumes."""

_EPILOG = """\
Without --replace, the command writes to another table, which you can query, compare and drop at any time. With
--replace, it replaces the content of the stream's table in one step. Readers see the old content until this step.

  destination-datalake replay --config config.json --stream shop.orders --dry-run
  destination-datalake replay --config config.json --stream shop.orders
  destination-datalake replay --config config.json --stream shop.orders --replace

The exit code is 0 on success, 1 if the configuration is invalid or the replay failed, 2 for an invalid command line,
and 143 after SIGTERM."""

_TABLE = re.compile(r"[a-z0-9_]{1,255}")


def run_replay(arguments: Sequence[str], spark: Engine | None = None) -> int:
    """Run the command `replay`. Return the exit code: 0, 1 or 143.

    `arguments` does not contain the command's name. If `spark` is None, starts a Spark engine when the command needs
    one. Raises SystemExit with code 2 if the command line is invalid, and with code 0 for `--help`.
    """
    with terminal.terminable(spark) as termination:
        options = _parser().parse_args(arguments)
        archive = f"the archive of stream {options.stream}"
        return terminal.run(options, "replay", archive, lambda config: _replay(config, options, termination, spark))


def _replay(config: Config, options: argparse.Namespace, termination: Termination, spark: Engine | None) -> int:
    if options.replace and config.catalog.limits.assigns_locations:
        raise ConfigError(
            "--replace does not support tables in a table bucket, because Amazon S3 Tables determines the location of "
            "their files. Omit --replace to replay into another table."
        )
    access = aws_access(config)
    name, history = _find_archive(options.stream, config)
    # Two suffixes, because `--replace` drops an existing target table, but must not drop the result of another replay.
    suffix = REBUILD_SUFFIX if options.replace else REPLAY_SUFFIX
    target_table = TableName(name.database, f"{name.table}{suffix}" if options.into is None else options.into)
    if options.into is None and len(target_table.table.encode()) > MAX_BYTES:
        remedy = "Choose a shorter name with --into, without --replace." if options.replace else "Set --into."
        raise ConfigError(
            f"Cannot replay table {name}: with the suffix {suffix}, its name would exceed {MAX_BYTES} bytes. {remedy}"
        )
    if options.into is not None and (target_table == name or not _TABLE.fullmatch(options.into)):
        raise ConfigError(
            f"--into {options.into}: the name must differ from the name of the stream's table, and contain 1 to 255 "
            "characters from a to z, 0 to 9 and _."
        )
    if options.replace and not options.dry_run:
        _require_no_erasure(name, config)
    folder = table_folder(config.uri(ARCHIVE_FOLDER), *name)
    with terminal.engine_on_demand(config, spark) as engine:
        source = ReplaySource(config, access, catalog_of(config, access), name, folder)
        replayer = Replayer(source, target_table, engine, terminal.write, lambda: termination.requested)
        if options.dry_run:
            plan = replayer.describe(history)
            if options.accept_gaps:
                replayer.describe_difference(plan)
            return 0
        started = time.monotonic()
        is_complete = replayer.run(
            history, uuid.uuid4().hex[:12], replace=options.replace, accept_gaps=options.accept_gaps
        )
        terminal.write(f"{replayer.summary} in {time.monotonic() - started:.1f} s.")
    return 0 if is_complete else EXIT_TERMINATED


def _require_no_erasure(name: TableName, config: Config) -> None:
    """Raise ConfigError if `delete-rows` has not finished a request to erase rows from the table.

    In that case, the table may still contain rows that a replay skips. The result of the replay would then differ from
    the table.
    """
    ledger = config.uri(DELETIONS_FOLDER)
    if requests := unfinished(ledger, str(name), aws_access(config).client("s3")):
        raise ConfigError(
            f"Cannot replace table {name}: `delete-rows` has not finished its request {requests[0]}. "
            "Run the same `delete-rows` command again, and then this command. If the file with the IDs is lost, create "
            f"it again, or delete {ledger}/{requests[0]}/. The table was not changed."
        )


def _find_archive(stream: str, config: Config) -> tuple[TableName, History]:
    """Return a stream's table and its archived syncs. Raises ConfigError if the stream has no archive."""
    access = aws_access(config)
    for name, stream_id in TableNaming.from_config(config).candidates(stream).items():
        history = read_history(table_folder(config.uri(ARCHIVE_FOLDER), *name), access)
        if any(StreamId(stored.entry.namespace, stored.entry.stream) == stream_id for stored in history.syncs):
            return name, history
    raise ConfigError(
        f"--stream {stream}: {config.uri(ARCHIVE_FOLDER)}/ contains no archive of this stream. Use the form "
        "namespace.name, or name if the stream has no namespace. Syncs archive records if raw_archive.enabled is true."
    )


def _parser() -> argparse.ArgumentParser:
    parser = terminal.parser("replay", _DESCRIPTION, _EPILOG)
    parser.add_argument(
        "--stream", required=True, metavar="NAME", help="namespace.name, or name if the stream has no namespace"
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--into",
        metavar="TABLE",
        help="name of the target table, in the database of the stream's table (default: the name of the stream's table "
        "with the suffix __replay)",
    )
    target.add_argument("--replace", action="store_true", help="replace the content of the stream's table")
    parser.add_argument(
        "--accept-gaps",
        action="store_true",
        help="with --replace: replace the content even if rows are lost or deleted rows come back; with --dry-run: "
        "print the numbers of these rows",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the syncs, batches and records to replay, and change nothing"
    )
    return parser
