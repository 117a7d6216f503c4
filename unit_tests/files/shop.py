"""Rows of a shop's orders, and the files that they are written to."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.files.plan import DataFile, FileFormat, FilePlan
from destination_datalake.partitioning.spec import (
    Identity,
    PartitionField,
    Partitioning,
    PartitionValue,
    Since1970,
    SortOrder,
    Truncate,
)
from destination_datalake.records.decoded import Decoded, Lines
from destination_datalake.schema.types import Date, Field, Int32, String
from unit_tests.cloud import BUCKET, Cloud

FOLDER = f"s3://{BUCKET}/shop/orders"
CITY = PartitionField("city", ("city",), Identity())
NUMBER = PartitionField("number_trunc", ("number",), Truncate(10))
YEAR = PartitionField("day_year", ("day",), Since1970("year"))
FIRST_ID = bytes(16)
COLUMNS = (Field("city", "city", String()), Field("number", "number", Int32()), Field("day", "day", Date()))


class Order(NamedTuple):
    """One row. `day` is a number of days since 1970."""

    city: str | None = None
    number: int | None = None
    day: int | None = None


@dataclass(frozen=True)
class Folders:
    """A folder for each value."""

    def folder(self, values: Sequence[PartitionValue]) -> str:
        return "/".join(f"p={value!r}" for value in values)


def plan(
    *fields: PartitionField,
    format: FileFormat = "parquet",
    sort_order: SortOrder | None = None,
    deferred: bool = False,
    target_bytes: int = 128 * 1024 * 1024,
    max_open: int = 500,
) -> FilePlan:
    return FilePlan(
        format=format,
        codec="ZSTD" if format == "parquet" else "GZIP",
        columns=COLUMNS,
        field_ids={},
        folder=FOLDER,
        deferred=deferred,
        target_bytes=target_bytes,
        generation=1,
        sync_id=2,
        partitioning=Partitioning(fields, Folders(), max_open) if fields else None,
        sort_order=sort_order,
    )


_lines = count()


def block(*orders: Order) -> Decoded:
    """Return orders whose lines come after those of all blocks before."""
    places = np.array([next(_lines) for _ in orders], np.int64)
    return Decoded(
        extracted_at=pa.array([0] * len(orders), pa.timestamp("us", tz="UTC")),
        columns=[
            pa.array([order.city for order in orders], pa.string()),
            pa.array([order.number for order in orders], pa.int64()),
            pa.array([order.day for order in orders], pa.int32()).cast(pa.date32()),
        ],
        changes=None,
        lines=Lines(b"", places, places, places),
    )


def key(file: DataFile) -> str:
    return file.uri.removeprefix(f"s3://{BUCKET}/")


class Stored(NamedTuple):
    """A row as a file has it."""

    id: str
    order: Order


def rows(cloud: Cloud, file: DataFile) -> list[Stored]:
    content = cloud.access.client("s3").get_object(Bucket=BUCKET, Key=key(file))["Body"].read()
    records: list[dict[str, Any]]
    if file.uri.endswith(".parquet"):
        records = pq.ParquetFile(pa.BufferReader(content)).read().to_pylist()
    else:
        records = [json.loads(line) for line in gzip.decompress(content).splitlines()]
    return [Stored(row["_airbyte_raw_id"], Order(row["city"], row["number"], _days(row["day"]))) for row in records]


def _days(day: Any) -> int | None:
    return None if day is None else pa.scalar(day).cast(pa.date32()).value
