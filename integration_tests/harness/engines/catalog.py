"""Read a Hive table through the partitions that are registered in Glue, as Athena and Trino do."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from integration_tests.harness.lake import Lake

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import PartitionTypeDef, StorageDescriptorOutputTypeDef

NULL = "__HIVE_DEFAULT_PARTITION__"

Row = dict[str, Any]


@dataclass(frozen=True)
class RegisteredPartition:
    """A partition in the catalog: its values by key, as texts, and the objects below its location."""

    values: Mapping[str, str]
    location: str
    objects: Sequence[str]
    rows: Sequence[Row]
    """The rows of the objects, read according to the partition's descriptor. Partition keys have the values of their
    types."""


def registered(lake: Lake, table: str, database: str | None = None) -> list[RegisteredPartition]:
    """Return the registered partitions of a table, sorted by their values.

    Asserts what query engines assume: values are unique, no object belongs to two partitions, and the columns are those
    of the table (Athena: HIVE_PARTITION_SCHEMA_MISMATCH).
    """
    database = database or lake.database
    entry = lake.glue_table(database, table)
    keys = {key["Name"]: key.get("Type", "string") for key in entry["PartitionKeys"]}
    columns = _columns(entry["StorageDescriptor"])
    partitions = []
    for partition in _entries(lake, database, table):
        descriptor = partition["StorageDescriptor"]
        own = _columns(descriptor)
        assert own == columns[: len(own)], f"partition {partition['Values']} has other columns than the table"
        values = dict(zip(keys, partition["Values"], strict=True))
        objects = [key for key, _ in lake.visible(descriptor["Location"])]
        typed = {name: _typed(kind, values[name]) for name, kind in keys.items()}
        rows = [{**row, **typed} for row in _rows(lake, objects, descriptor)]
        partitions.append(RegisteredPartition(values, descriptor["Location"], objects, rows))
    twice = [
        values
        for values, times in Counter(tuple(partition.values.values()) for partition in partitions).items()
        if times > 1
    ]
    assert twice == [], "partitions are registered twice"
    shared = [
        key for key, times in Counter(key for partition in partitions for key in partition.objects).items() if times > 1
    ]
    assert shared == [], "objects lie in two partitions"
    return sorted(partitions, key=lambda partition: [*partition.values.values()])


def rows_of(partitions: Sequence[RegisteredPartition], *columns: str) -> list[Row]:
    """Return the rows of all partitions, sorted by `id`. If `columns` are given, return only these columns."""
    rows = [row for partition in partitions for row in partition.rows]
    chosen = [{name: row[name] for name in columns} if columns else row for row in rows]
    return sorted(chosen, key=lambda row: str(row.get("id")))


def _entries(lake: Lake, database: str, table: str) -> list["PartitionTypeDef"]:
    pages = lake.glue.get_paginator("get_partitions").paginate(DatabaseName=database, TableName=table)
    return [partition for page in pages for partition in page["Partitions"]]


def _columns(descriptor: "StorageDescriptorOutputTypeDef") -> list[tuple[str, str]]:
    return [(column["Name"], column.get("Type", "string")) for column in descriptor["Columns"]]


def _rows(lake: Lake, objects: Sequence[str], descriptor: "StorageDescriptorOutputTypeDef") -> list[Row]:
    if "json" not in descriptor["SerdeInfo"]["SerializationLibrary"].lower():
        return lake.read_hive_files(objects, descriptor).to_pylist()
    rows = []
    for key in objects:
        content = lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        for line in text.splitlines():
            values = {name.lower(): value for name, value in json.loads(line).items()}
            rows.append({name: _openx(kind, values.get(name)) for name, kind in _columns(descriptor)})
    return rows


def _openx(kind: str, value: Any) -> Any:
    """Return a value as the OpenX SerDe reads it.

    The SerDe reads timestamps from text, or from milliseconds since 1970 with at least 13 digits.
    """
    if value is None or kind not in ("timestamp", "date"):
        return value
    if isinstance(value, int):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value) if kind == "timestamp" else None
    return datetime.fromisoformat(value).replace(tzinfo=UTC) if kind == "timestamp" else date.fromisoformat(value)


def _typed(kind: str, text: str) -> Any:
    if text == NULL:
        return None
    match kind:
        case "bigint" | "int":
            return int(text)
        case "date":
            return date.fromisoformat(text)
        case "string":
            return text
        case _:
            raise AssertionError(f"no engine is known to take {kind} for a partition key of every kind")
