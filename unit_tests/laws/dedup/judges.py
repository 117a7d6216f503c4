"""Readers of the table that are not the connector: they find the versions that are there, each once."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as PyIcebergTable

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address
from unit_tests.laws.dedup.histories import SERIAL
from unit_tests.laws.dedup.model.versions import Value, Version

Row = Mapping[str, Any]


def by_pyiceberg(table: PyIcebergTable) -> list[Row]:
    """Return the rows that PyIceberg's scan finds."""
    return [*table.scan().to_arrow().to_pylist()]


def by_duckdb(table: PyIcebergTable, access: AwsAccess) -> list[Row]:
    """Return the rows that DuckDB finds in the live files, without those that files of position deletes name.

    PyIceberg only says which files those are.
    """
    scan = table.scan()
    tasks = list(scan.plan_files())
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        empty = engine.from_arrow(schema_to_pyarrow(scan.projection()).empty_table())
        fields = ", ".join(
            f"{field.field_id}: {{name: {_literal(field.name)}, type: {_literal(str(kind))}, default_value: NULL}}"
            for field, kind in zip(scan.projection().fields, empty.types, strict=True)
        )
        rows: list[Row] = []
        for number, task in enumerate(tasks):
            data = _copy(task.file.file_path, Path(folder, f"{number}.parquet"), access)
            query = f"SELECT * FROM read_parquet({_literal(data)}, schema = MAP {{{fields}}}, file_row_number = true)"
            if task.delete_files:
                deletes = [
                    _copy(delete_file.file_path, Path(folder, f"{number}-{position}.parquet"), access)
                    for position, delete_file in enumerate(task.delete_files)
                ]
                named = f"SELECT pos FROM read_parquet({deletes}) WHERE file_path = {_literal(task.file.file_path)}"
                query += f" WHERE file_row_number NOT IN ({named})"
            rows += engine.sql(query).to_arrow_table().to_pylist()
        return rows


def versions_of(rows: Sequence[Row], sent: Sequence[Version]) -> list[Version]:
    """Return which of the versions that were sent the rows are. Fails if one is there twice, or has other values."""
    counts = Counter(row[SERIAL] for row in rows)
    assert {serial: times for serial, times in counts.items() if times > 1} == {}, "rows are there twice"
    for row in rows:
        expected = sent[row[SERIAL]].values
        wrong = {name: (value, row.get(name)) for name, value in expected.items() if not _is_same(value, row.get(name))}
        assert wrong == {}, f"version {row[SERIAL]} has other values (sent, found)"
    return [sent[row[SERIAL]] for row in rows]


def _is_same(sent: Value, stored: Any) -> bool:
    if isinstance(sent, float) and isinstance(stored, float):
        return (math.isnan(sent) and math.isnan(stored)) or (sent, math.copysign(1, sent)) == (
            stored,
            math.copysign(1, stored),
        )
    return bool(sent == stored)


def _copy(uri: str, path: Path, access: AwsAccess) -> str:
    address = S3Address.parse(uri)
    path.write_bytes(access.client("s3").get_object(Bucket=address.bucket, Key=address.key)["Body"].read())
    return str(path)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
