"""The encoding job, as it runs on executors: segments are read, data files and rejects written, results returned."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from destination_datalake.aws.access import Environment
from destination_datalake.aws.objects import undone_on_failure
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.kept_keys import KeptKeys, columns_to_read
from destination_datalake.files.plan import FilePlan
from destination_datalake.files.segments import LocalFile, contents
from destination_datalake.files.tasks import Encoded, EncodeTask, EncodeUnit, NotEncoded, UnitResult
from destination_datalake.files.writing.partitioned import PartitionedFileWriter
from destination_datalake.files.writing.rolling import RollingFileWriter
from destination_datalake.records.decoder import BlockDecoder, blocks
from destination_datalake.records.undeclared import undeclared_fields
from destination_datalake.records.values.rules import Floats
from destination_datalake.rejects.line import RejectFormatter
from destination_datalake.rejects.writer import RejectsNotWritten, RejectWriter

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess


def encode(tasks: Iterable[EncodeTask]) -> Iterator[UnitResult]:
    """Encode every unit of the tasks; yield a result for each. A unit that fails does not stop the others."""
    for task in tasks:
        for unit in task.units:
            result = attempt(partial(_encoded, unit, task.access), partial(_problem, unit, task.access))
            yield _not_encoded(unit, result, task.access) if isinstance(result, Failed) else result


def _encoded(unit: EncodeUnit, access: AwsAccess) -> Encoded:
    s3 = access.client("s3")
    # JSON cannot express NaN and infinities.
    decoder = BlockDecoder(columns_to_read(unit.plan), Floats.FINITE if unit.plan.format == "jsonl" else Floats.ANY)
    # An attempt that Spark has given up may still run, on another machine for long: its objects have names of
    # their own, or it would overwrite or delete those of the next attempt.
    attempt = f"{unit.name}-{secrets.token_hex(4)}"
    writer = RollingFileWriter if _is_plain(unit.plan) else PartitionedFileWriter
    files = writer(attempt, unit.plan, s3, arrival=unit.arrival)
    keys = KeptKeys.of(unit.plan)
    now = time.time_ns() // 1_000_000
    formatter = RejectFormatter(unit.rejects, unit.stream, unit.plan.columns, unit.name, now)
    rejects = RejectWriter(formatter, unit.rejects, attempt, s3)
    undeclared: tuple[str, ...] | None = None
    with undone_on_failure(files.abort, rejects.abort):
        for content in contents(unit.segments, access):
            for block in blocks(content, unit.plan.columns):
                undeclared = undeclared_fields(block, unit.plan.columns) if undeclared is None else undeclared
                for decoded in decoder.decode(block):
                    if keys is not None:
                        decoded = keys.refuse(decoded)
                    rejects.write(decoded, files.write(decoded))
        rejected = rejects.close()
        written = files.close()
    return Encoded(unit.stream, tuple(written), rejects.counts(), tuple(rejected), undeclared or ())


def _is_plain(plan: FilePlan) -> bool:
    return plan.partitioning is None and plan.sort_order is None


def _problem(unit: EncodeUnit, access: AwsAccess, error: Exception) -> Problem:
    headline = f"Stream {unit.stream} could not be written"
    if isinstance(error, RejectsNotWritten):
        return Problem(headline, "write rejects to", error.uri, access)
    return Problem(headline, "write data files under", unit.plan.folder, access)


def _not_encoded(unit: EncodeUnit, failed: Failed, access: AwsAccess) -> NotEncoded:
    """Say where a failure was, if not on the driver's machine: network and role may be others there."""
    if all(isinstance(segment.location, LocalFile) for segment in unit.segments):
        return NotEncoded(failed.failure, unit.stream)
    message = f"{failed.failure.message} This was on an executor, on host {socket.gethostname()}."
    denied = failed.failure.missing is not None or "credentials" in failed.failure.message
    if denied and isinstance(access.identity, Environment):
        message = message.replace("the connector's identity", "the executors' role")
        message += (
            " Executors have the credentials that they find there: give them a role that may read and write under "
            "bucket_prefix, or set spark.executor_credentials to session."
        )
    return NotEncoded(replace(failed.failure, message=message), unit.stream)
