"""Parquet files in a bucket, as tables name them: of data, and of position deletes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.files.plan import SourceFile
from unit_tests.cloud import BUCKET, Cloud

FOLDER = f"s3://{BUCKET}/orders/data"


def field(id_: int, name: str, type_: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(id_)})


DELETES = pa.schema([field(2147483546, "file_path", pa.string()), field(2147483545, "pos", pa.int64())])


def put(lake: Cloud, name: str, rows: pa.Table, **options: Any) -> SourceFile:
    body = io.BytesIO()
    pq.write_table(rows, body, **options)
    lake.access.client("s3").put_object(Bucket=BUCKET, Key=f"orders/data/{name}", Body=body.getvalue())
    return SourceFile(f"{FOLDER}/{name}", len(body.getvalue()), rows.num_rows)


def put_deletes(
    lake: Cloud, name: str, rows: Sequence[tuple[str, int | None]], schema: pa.Schema = DELETES, **options: Any
) -> SourceFile:
    """`rows` are URIs of data files, and positions in them."""
    named = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    return put(lake, name, named, **options)


def with_deletes(file: SourceFile, *deletes: SourceFile) -> SourceFile:
    return replace(file, position_deletes=deletes)


def dead(file: SourceFile, positions: Iterable[int]) -> list[tuple[str, int | None]]:
    return [(file.uri, position) for position in positions]
