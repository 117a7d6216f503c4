"""The encode job on executors: read segments (files of record lines), and write data files and rejects.

A reject is a dead letter: a record, or a value of a record, that could not be written as sent.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.aws.access import AwsAccess, Environment
from destination_datalake.aws.objects import ObjectFailed, rollback_on_error
from destination_datalake.files.block_tables import new_first_id
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.plan import (
    KEY_CHANGED,
    Encoded,
    EncodeTask,
    EncodeUnit,
    FilePlan,
    NotEncoded,
    UnitResult,
)
from destination_datalake.files.segments import LocalFile, contents
from destination_datalake.files.unit_files import PartitionedFileWriter, RollingFileWriter
from destination_datalake.records.decoded import TRUNCATED, Decoded, RejectedLine
from destination_datalake.records.decoder import BlockDecoder, blocks
from destination_datalake.records.undeclared import undeclared_fields
from destination_datalake.records.values.numbers import ExactFloat
from destination_datalake.records.values.rules import Floats, path_step
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.rejects.writer import RejectFormatter, RejectWriter
from destination_datalake.schema.types import Field, Float32, Float64


def encode(tasks: Iterable[EncodeTask]) -> Iterator[UnitResult]:
    """Encode each unit of the tasks. Yield one result per unit.

    If a unit fails, yields a NotEncoded for this unit and continues with the next one.
    """
    for task in tasks:
        for unit in task.units:
            result = attempt(partial(_encode, unit, task.access), partial(_problem, unit, task.access))
            yield _not_encoded(unit, result, task.access) if isinstance(result, Failed) else result


def _encode(unit: EncodeUnit, access: AwsAccess) -> Encoded:
    s3 = access.client("s3")
    plan = unit.plan
    # JSON cannot represent NaN and infinity.
    decoder = BlockDecoder(columns_to_read(plan), Floats.FINITE if plan.format == "jsonl" else Floats.ANY)
    # Spark may retry a unit while the first attempt is still running on another machine. Each attempt uses its own
    # object names, so attempts neither overwrite nor delete each other's objects.
    attempt = f"{unit.name}-{secrets.token_hex(4)}"
    archived_ids = (segment.first_id for segment in unit.segments if segment.first_id is not None)
    # A unit of lines that already have IDs consists of one segment (see `plan._units`), so the first ID is the only
    # one.
    first_id = next(archived_ids, None) or new_first_id(unit.ingest_order)
    filters = [opened for rule in unit.filters if (opened := rule.open(plan.columns, s3)) is not None]
    guard = KeyGuard.from_plan(plan)
    is_plain = plan.partitioning is None and plan.sort_order is None
    writer = RollingFileWriter if is_plain else PartitionedFileWriter
    # Credentials that the catalog issues are valid for the table's files only, not for rejects and the archive.
    s3_of_files = s3 if plan.vended_access is None else plan.vended_access.client("s3")
    files = writer(attempt, plan, s3_of_files, first_id)
    formatter = RejectFormatter(unit.rejects, unit.stream, plan.columns, unit.name, time.time_ns() // 1_000_000)
    rejects = RejectWriter(formatter, unit.rejects, attempt, s3)
    sinks = [sink.open(unit.segments, attempt, first_id, s3, plan.spool_folder) for sink in unit.sinks]
    undeclared: tuple[str, ...] | None = None
    left_out = 0
    refused: Counter[str] = Counter()
    with rollback_on_error(files.abort, rejects.abort, *(sink.abort for sink in sinks)):
        for content in contents(unit.segments, access):
            left_out += content.left_out
            for line_filter in filters:
                filtered = line_filter.apply(content)
                refused[line_filter.reason] += filtered.left_out - content.left_out
                content = filtered
            for block in blocks(content.lines, plan.columns):
                # Sinks get the lines before they are decoded, so the archive also contains lines that the decoder
                # rejects.
                for sink in sinks:
                    sink.write(block)
                if undeclared is None:
                    undeclared = undeclared_fields(block, plan.columns)
                for decoded in decoder.decode(block):
                    kept = decoded if guard is None else guard.refuse(decoded)
                    # Reject lines refer to rows by ID, and writing the rows assigns the IDs.
                    rejects.write(kept, files.write(kept))
        line_files = tuple(sink.close() for sink in sinks)
        rejected = rejects.close()
        written = files.close()
    counts = RejectCounts.total([rejects.counts(), *(RejectCounts.refusing(*item) for item in refused.items())])
    return Encoded(unit.stream, tuple(written), counts, tuple(rejected), undeclared or (), line_files, left_out)


def _problem(unit: EncodeUnit, access: AwsAccess, error: Exception) -> Problem:
    headline = f"Stream {unit.stream} could not be written"
    if isinstance(error, ObjectFailed):
        return Problem(headline, error.doing, error.uri, access)
    return Problem(headline, "write data files under", unit.plan.folder, unit.plan.vended_access or access)


def _not_encoded(unit: EncodeUnit, failed: Failed, access: AwsAccess) -> NotEncoded:
    """Return the result of a unit that could not be encoded.

    If the unit ran on another machine, the message names that machine. Its network and AWS role may differ from the
    driver's.
    """
    if all(isinstance(segment.location, LocalFile) for segment in unit.segments):
        return NotEncoded(failed.failure, unit.stream)
    message = f"{failed.failure.message} The error occurred on an executor on host {socket.gethostname()}."
    denied = failed.failure.missing is not None or "credentials" in failed.failure.message
    if denied and isinstance(access.identity, Environment):
        message = message.replace("the connector's identity", "the executors' role")
        message += (
            " Executors use the credentials of their own environment. Give the executors a role that can read and "
            "write objects under bucket_prefix, or set spark.executor_credentials to session."
        )
    return NotEncoded(replace(failed.failure, message=message), unit.stream)


# --- The keys of deduplicated streams ---------------------------------------------------------------------------------


def columns_to_read(plan: FilePlan) -> tuple[Field, ...]:
    """Return the plan's columns with the types for decoding. The decoder reads floats in key columns exactly.

    Without exact reading, two different key values could become the same float. Their records would replace each other.
    """
    key = plan.dedup.key if plan.dedup is not None else ()
    return tuple(
        replace(column, type=ExactFloat())
        if column.name in key and isinstance(column.type, Float32 | Float64)
        else column
        for column in plan.columns
    )


class KeyGuard:
    """Rejects records in which the connector or the source changed a value that deduplication needs.

    - Key: if the connector nulled two keys, or truncated them to the same value, their rows would replace each other. A
      null that the source sent as null is a valid key.
    - Cursor: a record without a cursor would count as older than all other records of its key. The guard accepts a
      truncated cursor, such as a time with nanoseconds, because truncation never reverses the order of two cursors.
    - Time of deletion: without this time, a record that deletes a row would instead replace the row with nulls.
    """

    def __init__(self, key: Sequence[str], may_be_truncated: Sequence[str]) -> None:
        """Guard the fields in `key` and `may_be_truncated`. Only the latter may be truncated.

        Both contain field names in the form of `ValueChange.field`.
        """
        self._key = pa.array(key, pa.string())
        self._all = pa.array([*key, *may_be_truncated], pa.string())

    @classmethod
    def from_plan(cls, plan: FilePlan) -> Self | None:
        """Return the guard for a plan, or None if the plan does not deduplicate rows."""
        dedup = plan.dedup
        if dedup is None:
            return None
        fields = {column.name: ".".join(map(path_step, column.path)) for column in plan.columns}
        may_be_truncated = [fields[name] for name in (dedup.cursor, dedup.deleted_at) if name is not None]
        return cls([fields[name] for name in dedup.key], may_be_truncated)

    def refuse(self, decoded: Decoded) -> Decoded:
        """Return the block without the rejected records.

        `Decoded.rejected` of the result also contains the lines of these records.
        """
        if decoded.changes is None:
            return decoded
        rows = self._changed(decoded.changes)
        if not len(rows):
            return decoded
        message = "the primary key, the cursor or the time of deletion cannot be stored unchanged"
        rejected = [RejectedLine(decoded.lines[row], KEY_CHANGED, message) for row in rows.tolist()]
        kept = np.ones(decoded.rows, np.bool_)
        kept[rows] = False
        return replace(decoded.filtered(kept), rejected=[*decoded.rejected, *rejected])

    def _changed(self, changes: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers of the rows in which a guarded value was changed, in ascending order."""
        # One array contains the changes of all rows. `list_parent_indices` returns the row of each change.
        entries = changes.flatten()
        field = entries.field("field")
        is_truncated: Any = pc.equal(entries.field("change"), pa.scalar(TRUNCATED)).fill_null(False)
        in_key, is_guarded = pc.is_in(field, self._key), pc.is_in(field, self._all)
        # In the key, any change is wrong. In the other guarded fields, only a truncation is allowed.
        wrong: Any = pc.or_(in_key, pc.and_not(is_guarded, is_truncated))
        # A row with several changes counts once.
        return np.unique(pc.list_parent_indices(changes).filter(wrong).to_numpy(False).astype(np.int64))
