"""Pending files of a table with any columns, as jobs read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from destination_datalake.files.dedup.tasks import Versions, WinnersTask
from destination_datalake.files.plan import SourceFile
from unit_tests.cloud import Cloud
from unit_tests.files import stored
from unit_tests.files.dedup.values import Column
from unit_tests.files.stored import field, put_deletes, with_deletes

SCHEMA = pa.schema(
    [
        field(1, "id", pa.string()),
        field(2, "updated", pa.int64()),
        field(3, "deleted_at", pa.string()),
        field(4, "amount", pa.float64()),
        field(5, "_airbyte_raw_id", pa.string()),
        field(6, "_airbyte_extracted_at", pa.timestamp("us", "UTC")),
    ]
)
VERSIONS = Versions(key=(1,), cursor=2, extracted_at=6, raw_id=5, deleted_at=3)

Row = dict[str, Any]


def order(
    id: str | None, updated: int | None = 0, extracted: int = 0, raw: str = "", deleted: str | None = None
) -> Row:
    """A version of an order."""
    return {
        "id": id,
        "updated": updated,
        "_airbyte_extracted_at": extracted,
        "_airbyte_raw_id": raw,
        "deleted_at": deleted,
        "amount": 1.0,
    }


def put(
    lake: Cloud,
    name: str,
    rows: Sequence[Row] | pa.Table,
    dead: Sequence[int] = (),
    schema: pa.Schema = SCHEMA,
    **options: Any,
) -> SourceFile:
    """Write a file, and position deletes of the rows that are dead."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([*rows], schema)
    source = stored.put(lake, name, table, **options)
    if not dead:
        return source
    return with_deletes(source, put_deletes(lake, f"{name}-deletes", stored.dead(source, dead)))


def task(
    lake: Cloud,
    *files: SourceFile,
    folder: str | None = None,
    parts: int = 1,
    versions: Versions = VERSIONS,
    schema: pa.Schema = SCHEMA,
    first: int = 0,
) -> WinnersTask:
    return WinnersTask(files, first, schema, versions, parts, folder, lake.access)


def of_columns(columns: Sequence[Column]) -> pa.Table:
    """Rows with columns of these values; field ids are from 1."""
    fields = [field(number, f"c{number}", type_) for number, (type_, _) in enumerate(columns, 1)]
    return pa.Table.from_arrays([pa.array(values, type_) for type_, values in columns], schema=pa.schema(fields))
