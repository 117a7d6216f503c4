"""What runs on the executors: reads segments, writes data files, answers with a small value per unit."""

from __future__ import annotations

import mmap
import secrets
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.errors import explain
from destination_datalake.aws.upload import Upload
from destination_datalake.aws.withdrawal import undone_on_failure, withdraw_all
from destination_datalake.errors import Failure
from destination_datalake.files.field_ids import with_field_ids
from destination_datalake.files.metadata import metadata_columns
from destination_datalake.files.parquet import FileWriter, extension, open_file
from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.files.tasks import Encoded, EncodeTask, EncodeUnit, NotEncoded, UnitResult
from destination_datalake.records.block import Decoded
from destination_datalake.records.block_size import blocks
from destination_datalake.records.changes import Floats
from destination_datalake.records.reader import BlockDecoder
from destination_datalake.records.undeclared import undeclared_fields
from destination_datalake.rejects.line import RejectFormatter
from destination_datalake.rejects.writer import RejectsNotWritten, RejectWriter
from destination_datalake.schema.arrow import arrow_field
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.narrowest import narrowest
from destination_datalake.schema.types import Field

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.aws.access import AwsAccess


def encode(tasks: Iterable[EncodeTask]) -> Iterator[UnitResult]:
    """Encode every unit of the tasks. A unit that fails is answered as such and does not stop the others."""
    pa.set_cpu_count(1)  # Spark runs a task per core already.
    for task in tasks:
        for unit in task.units:
            yield _encode_unit(unit, task.access)


def _encode_unit(unit: EncodeUnit, access: AwsAccess) -> UnitResult:
    try:
        return _encoded(unit, access)
    except Exception as error:
        return _not_encoded(unit, error)


def _encoded(unit: EncodeUnit, access: AwsAccess) -> Encoded:
    s3 = access.client("s3")
    # JSON has no word for NaN and the infinities.
    decoder = BlockDecoder(unit.plan.columns, Floats.FINITE if unit.plan.format == "jsonl" else Floats.ANY)
    # A try that Spark has given up may go on for a while, or for long on another machine: what it then writes, or takes
    # back, must not be what the next try has written. Rejects keep their names, so that none are told of twice.
    files = _UnitFiles(f"{unit.name}-{secrets.token_hex(4)}", unit.plan, s3)
    now = time.time_ns() // 1_000_000
    lines = RejectFormatter(unit.rejects, unit.stream, unit.plan.columns, unit.name, now)
    rejects = RejectWriter(lines, unit.rejects, unit.name, s3)
    noticed: tuple[str, ...] | None = None
    with undone_on_failure(files.abort, rejects.abort):
        for segment in unit.segments:
            for block in blocks(_content(segment, access), unit.plan.columns):
                noticed = undeclared_fields(block, unit.plan.columns) if noticed is None else noticed
                for decoded in decoder.decode(block):
                    rejects.write(decoded, files.write(decoded))
        rejected = rejects.close()
        written = files.close()
    return Encoded(unit.stream, tuple(written), rejects.counts(), tuple(rejected), noticed or ())


def _not_encoded(unit: EncodeUnit, error: Exception) -> NotEncoded:
    if isinstance(error, RejectsNotWritten):
        failure = explain(error, doing="write rejects to", resource=error.uri)
    else:
        failure = explain(error, doing="write data files under", resource=unit.plan.folder)
    notes = "\n".join(getattr(error, "__notes__", ()))
    if failure is not None:
        detail = f"{failure.detail}\n{notes}".rstrip()
        return NotEncoded(unit.stream, replace(failure, detail=detail))
    message = f"Stream {unit.stream} could not be written: an unexpected {type(error).__name__} while encoding."
    trace = "".join(traceback.format_tb(error.__traceback__))
    return NotEncoded(unit.stream, Failure(message, trace + notes, "system_error"))


class _UnitFiles:
    """The files of one unit. A new one begins when the last is large enough, or when a column becomes wider."""

    def __init__(self, name: str, plan: FilePlan, s3: S3Client) -> None:
        self._name = name
        self._plan = plan
        self._s3 = s3
        self._columns = plan.columns
        self._schema = _stored_schema(plan.columns, plan)
        self._upload: Upload | None = None
        self._writer: FileWriter | None = None
        self._rows = 0
        self._with_nulls: set[str] = set()
        self._finished: list[DataFile] = []

    def write(self, decoded: Decoded) -> pa.Array[Any]:
        """Append records to the open file, or begin one; return the ids of their rows."""
        fitted = tuple(
            replace(column, type=narrowest(array, column.type))
            for column, array in zip(self._columns, decoded.columns, strict=True)
        )
        if fitted != self._columns:
            self._finish()
            self._columns = fitted
            self._schema = _stored_schema(fitted, self._plan)
        metadata = metadata_columns(decoded, self._plan.generation, self._plan.sync_id)
        own = [
            array.cast(field.type, safe=False)
            for array, field in zip(decoded.columns, list(self._schema)[len(metadata) :], strict=True)
        ]
        if not decoded.rows:
            return metadata[0]
        table = pa.Table.from_arrays([*metadata, *own], schema=self._schema)
        if self._writer is None or self._upload is None:
            ending = extension(self._plan.format, self._plan.codec)
            where = S3Address.parse(f"{self._plan.folder}/{self._name}-{len(self._finished):04d}{ending}")
            self._upload = Upload(self._s3, where.bucket, where.key, hidden=self._plan.hidden)
            self._writer = open_file(self._plan.format, self._plan.codec, self._schema, self._upload)
        self._writer.write(table)
        self._rows += decoded.rows
        self._with_nulls.update(name for name in table.column_names if table.column(name).null_count)
        if self._upload.written >= self._plan.target_bytes:
            self._finish()
        return metadata[0]

    def close(self) -> list[DataFile]:
        """Finish the last file and return them all."""
        self._finish()
        return self._finished

    def abort(self) -> None:
        """Leave nothing of the unit in S3."""
        with ExitStack() as steps:
            if self._upload is not None:
                steps.callback(self._upload.abort)
            steps.callback(withdraw_all, self._finished, self._s3)

    def _finish(self) -> None:
        if self._writer is None or self._upload is None:
            return
        footer = self._writer.close()
        self._finished.append(
            DataFile(
                uri=self._upload.uri,
                size=self._upload.written,
                rows=self._rows,
                columns=self._columns,
                footer=footer,
                pending_upload=self._upload.pending_upload,
                with_nulls=frozenset(self._with_nulls),
            )
        )
        self._writer = self._upload = None
        self._rows = 0
        self._with_nulls = set()


def _stored_schema(columns: Sequence[Field], plan: FilePlan) -> pa.Schema:
    schema = pa.schema([arrow_field(column) for column in (*METADATA_COLUMNS, *columns)])
    return with_field_ids(schema, plan.field_ids) if plan.field_ids else schema


def _content(segment: str, access: AwsAccess) -> mmap.mmap | bytes:
    if not segment.startswith("s3://"):
        with Path(segment).open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    where = S3Address.parse(segment)
    return access.client("s3").get_object(Bucket=where.bucket, Key=where.key)["Body"].read()
