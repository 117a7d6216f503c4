"""The versions of rows that pending files have: key, order and place of every row, without the rest of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from destination_datalake.files.dedup.keys import one_array
from destination_datalake.files.dedup.tasks import Versions, WinnersTask
from destination_datalake.files.reading.parquet import StoredFile, opened, read_rows
from destination_datalake.files.reading.position_deletes import deleted_rows
from destination_datalake.files.reading.projection import Unsuitable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_FIELD_ID = b"PARQUET:field_id"

READ_BYTES = 16 * 1024 * 1024
"""Arrow bytes of rows that are read at a time."""


class UnsuitableFile(Exception):
    """A file whose rows cannot be read as the table's. The text is a clause about it."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(reason)
        self.uri = uri


def key_columns(table: pa.Table) -> list[pa.Array[Any]]:
    """Return the columns of the key, of rows that `read_versions` has yielded."""
    return [one_array(table.column(name)) for name in table.column_names if name.startswith("key")]


def order_columns(table: pa.Table) -> list[pa.Array[Any]]:
    """Return the columns that say which of several rows is the latest, the most significant first."""
    names = ("cursor", "extracted_at", "arrives", "raw_id", "file", "position")
    return [one_array(table.column(name)) for name in names if name in table.column_names]


def read_versions(task: WinnersTask) -> Iterator[pa.Table]:
    """Yield the rows of the task's files that position deletes have left, in order, about READ_BYTES at a time.

    Columns are `key0` and so on, `cursor` (if there is one), `extracted_at`, `arrives` (1, if only some files do),
    `raw_id`, `is_tombstone`, `file` (its number) and `position`. Raises UnsuitableFile, and errors of AWS.
    """
    s3 = task.access.client("s3")
    fields = {_id(field): field for field in task.schema}
    wanted = pa.schema([fields[id_] for id_ in task.versions.columns if id_ in fields])
    for number, stored in enumerate(opened(task.files, s3), task.first_file):
        try:
            for rows in _versions(stored, number, wanted, task.versions, s3):
                if task.content_files:
                    arrives = np.full(rows.num_rows, number >= task.content_files, np.int8)
                    yield rows.append_column("arrives", pa.array(arrives))
                else:
                    yield rows
        except Unsuitable as error:
            raise UnsuitableFile(stored.source.uri, str(error)) from error


def _versions(
    stored: StoredFile, number: int, wanted: pa.Schema, versions: Versions, s3: S3Client
) -> Iterator[pa.Table]:
    dead = deleted_rows(stored.source, s3)
    first = 0
    for table in _blocks(read_rows(stored, wanted)):
        rows = _named(table, versions)
        positions = np.arange(first, first + table.num_rows)
        rows["file"] = pa.array(np.full(table.num_rows, number, np.int32))
        rows["position"] = pa.array(positions)
        first += table.num_rows
        found = pa.table(rows)
        yield found if dead is None else found.filter(pa.array(~dead[positions]))


def _blocks(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of several tables as one, whose columns are one array each."""
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    for table in tables:
        waiting.append(table)
        waiting_bytes += table.nbytes
        if waiting_bytes >= READ_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _named(table: pa.Table, versions: Versions) -> dict[str, Any]:
    by_id = {_id(field): table.column(position) for position, field in enumerate(table.schema)}

    def column(id_: int) -> Any:
        # A column that the table has no more is null in all rows.
        return by_id[id_] if id_ in by_id else pa.nulls(table.num_rows)

    named = {f"key{number}": column(id_) for number, id_ in enumerate(versions.key)}
    if versions.cursor is not None:
        named["cursor"] = column(versions.cursor)
    named |= {"extracted_at": column(versions.extracted_at), "raw_id": column(versions.raw_id)}
    if versions.deleted_at is None:
        named["is_tombstone"] = pa.array(np.zeros(table.num_rows, np.bool_))
    else:
        named["is_tombstone"] = column(versions.deleted_at).is_valid()
    return named


def _id(field: pa.Field[Any]) -> int:
    return int((field.metadata or {})[_FIELD_ID])
