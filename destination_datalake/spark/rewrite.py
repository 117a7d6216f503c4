"""Runs on the executors: Parquet files written anew with wider columns, everything else in them as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.upload import Upload
from destination_datalake.datafiles import RewriteTask, Rewritten
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.field_ids import with_doubles


def rewrite(tasks: Iterable[RewriteTask]) -> Iterator[Rewritten]:
    """Write every task's file again. Raises what reading and writing raise; a target half written is not visible."""
    pa.set_cpu_count(1)
    for task in tasks:
        yield _rewritten(task)


def _rewritten(task: RewriteTask) -> Rewritten:
    s3 = task.access.client("s3")
    source, target = S3Address.parse(task.source), S3Address.parse(task.target)
    body = s3.get_object(Bucket=source.bucket, Key=source.key)["Body"].read()
    old = pq.ParquetFile(pa.BufferReader(body))
    schema = _widened(old.schema_arrow, task)
    if task.to_double and schema == old.schema_arrow:
        return Rewritten(task.source, task.source, old.metadata.num_rows, len(body))
    upload = Upload(s3, target.bucket, target.key, hidden=False)
    try:
        codec = old.metadata.row_group(0).column(0).compression.lower() if old.num_row_groups else "snappy"
        codec = "none" if codec == "uncompressed" else codec
        with pq.ParquetWriter(cast("IO[Any]", upload), schema, compression=cast("Any", codec)) as writer:
            for index in range(old.num_row_groups):
                writer.write_table(old.read_row_group(index).cast(schema))
        upload.close()
    except Exception:
        upload.abort()
        raise
    return Rewritten(task.source, task.target, old.metadata.num_rows, upload.written)


def _widened(schema: pa.Schema, task: RewriteTask) -> pa.Schema:
    types = task.columns
    return with_doubles(
        pa.schema(
            [field.with_type(arrow_type(types[field.name])) if field.name in types else field for field in schema]
        ),
        task.to_double,
    )
