"""The partitioned Hive table `shop.events`: syncs into it, and what engines find by its registered partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.files.plan import DataFile, FileFormat
from destination_datalake.partitioning.transforms import by_partition
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.arrow import arrow_field, arrow_type
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Field, Int32, Timestamp
from destination_datalake.tables.naming import TableLocation
from destination_datalake.tables.table import Rewrite, TableName
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.config.examples import options
from unit_tests.tables.hive import orders
from unit_tests.tables.hive.orders import JSON, PARQUET, WIDE, rewrite

NAME = TableName("shop", "events")
ROOT = f"s3://{BUCKET}/shop/events"
ID = Field("id", "id", Int32())
AT = Field("created_at", "created_at", Timestamp(zoned=True))
NOTE = Field("note", "note", Int32())

JAN, FEB, MAR = "2023-01-31", "2023-02-28", "2023-03-01"

Row = tuple[int, str | None]
"""An id, and the day of `created_at`."""

__all__ = ["WIDE", "rewrite"]


class Sync(orders.Sync):
    """A sync of the stream, its table prepared."""

    def encode(self, *rows: Row, **more: Any) -> list[DataFile]:  # type: ignore[override]
        """Data files as executors write them: pending uploads, one for each partition."""
        plan, columns = self.table.plan(), self.columns(max(id for id, _ in rows))
        table = pa.Table.from_pylist(
            [
                {"id": id, "created_at": day and datetime.fromisoformat(f"{day}T12:00+00:00"), **more}
                for id, day in rows
            ],
            pa.schema([arrow_field(column) for column in columns]),
        )
        if plan.partitioning is None:
            return [self.upload(f"{plan.folder}/{uuid4().hex}.{plan.format}", columns, table)]
        fields, path = plan.partitioning.fields, plan.partitioning.path
        return [
            self.upload(
                "/".join(filter(None, (plan.folder, path.folder(values), f"{uuid4().hex}.{plan.format}"))),
                columns,
                part,
            )
            for values, part in by_partition(table, fields)
        ]

    def commit(self, *rows: Row, rewrite: Rewrite = rewrite, **more: Any) -> int:  # type: ignore[override]
        """Encode and commit until the answer is Committed; return the number of encodings."""
        return self.commit_encoded(lambda: self.encode(*rows, **more), rewrite)


SCHEMA = {"properties": {"id": {"type": "integer"}, "created_at": {"type": "string", "format": "date-time"}}}
"""The stream's schema, of which tables of other connectors have columns with their names."""


def sync(
    cloud: Cloud,
    *,
    columns: Sequence[Field] = (ID, AT),
    generation: int | None = None,
    overwrite: bool = False,
    format: FileFormat = "parquet",
    access: AwsAccess | None = None,
    partitioning: Any = "DATE",
    **given: Any,
) -> Sync:
    """Begin a sync of the stream, whose cursor is `created_at`."""
    minimum = generation if overwrite else None
    stream = Stream(
        StreamId("shop", "Events"), SCHEMA, overwrite and generation is None, generation, minimum, None, ("created_at",)
    )
    access = access or cloud.access
    config = Config.parse(options(bucket_name=BUCKET, table_type="HIVE", partitioning=partitioning, **given))
    location = TableLocation.for_stream(config, stream.id, NAME, SNAKE_CASE)
    return Sync(orders.prepared(NAME, stream, columns, format, config, location, access), access)


def glue_table(cloud: Cloud) -> Any:
    return orders.glue_table(cloud, NAME.table)


def set_parameters(cloud: Cloud, **parameters: str | None) -> None:
    """Set parameters of the Glue table as other programs do. None removes a parameter."""
    table = glue_table(cloud)
    merged = {**table["Parameters"], **parameters}
    keys = ("Name", "StorageDescriptor", "PartitionKeys", "TableType")
    changed: Any = {key: table[key] for key in keys}
    changed["Parameters"] = {name: value for name, value in merged.items() if value is not None}
    cloud.access.client("glue").update_table(DatabaseName="shop", TableInput=changed)


def location(cloud: Cloud) -> str:
    uri: str = glue_table(cloud)["StorageDescriptor"]["Location"]
    return uri.removesuffix("/")


def partitions(cloud: Cloud) -> dict[tuple[str, ...], Any]:
    """The registered partitions by their values."""
    pages = (
        cloud.access.client("glue").get_paginator("get_partitions").paginate(DatabaseName="shop", TableName="events")
    )
    return {tuple(partition["Values"]): partition for page in pages for partition in page["Partitions"]}


def locations(cloud: Cloud) -> dict[str, str]:
    """The locations of the registered partitions, relative to the table's, by their values."""
    root = glue_table(cloud)["StorageDescriptor"]["Location"]
    return {
        "/".join(values): partition["StorageDescriptor"]["Location"].removeprefix(root)
        for values, partition in partitions(cloud).items()
    }


def ids(cloud: Cloud) -> list[int]:
    """The ids that an engine finds which reads exactly the registered partitions, each by its own descriptor."""
    return sorted(id for id, _, _ in rows(cloud))


def rows(cloud: Cloud) -> list[tuple[int, tuple[str, ...], int | None]]:
    """The id, the partition and the note of each row.

    Files must have the types of their partition's descriptor, which the table's columns must hold (Athena:
    HIVE_PARTITION_SCHEMA_MISMATCH otherwise). A column that a descriptor does not have is null in its partition.
    """
    table = _types(glue_table(cloud))
    objects = cloud.objects()
    visible_rows: list[tuple[int, tuple[str, ...], int | None]] = []
    for values, partition in partitions(cloud).items():
        types = _types(partition)
        for name in table.keys() & types.keys():
            fitting = {table[name], {"bigint": "int"}.get(table[name])}
            assert types[name] in fitting, f"{name} of {values} is {types[name]}, and the table's is {table[name]}"
        prefix = partition["StorageDescriptor"]["Location"].removeprefix(f"s3://{BUCKET}/")
        assert prefix.endswith("/")
        bodies = [body for key, body in objects.items() if key.startswith(prefix) and body]
        read = [row for body in bodies for row in _rows(body, types)]
        visible_rows += [(row["id"], values, row.get("note") if "note" in types else None) for row in read]
    return visible_rows


def _types(entry: Mapping[str, Any]) -> dict[str, str]:
    return {column["Name"]: column["Type"] for column in entry["StorageDescriptor"]["Columns"]}


def read_file(body: bytes, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a file, which must have the types of a table's or a partition's descriptor."""
    return _rows(body, _types(entry))


def _rows(body: bytes, types: Mapping[str, str]) -> list[dict[str, Any]]:
    if body[:4] != b"PAR1":
        return [json.loads(line) for line in body.splitlines()]
    read = pq.read_table(pa.BufferReader(body))
    for field in read.schema:
        type_ = parse_glue_type(types.get(field.name, "none"))
        if field.name in ("id", "note") and field.name in types:
            assert type_ is not None
            assert field.type == arrow_type(type_), f"{field.name} is {types[field.name]} in the catalog"
    return read.to_pylist()


def create_foreign_table(cloud: Cloud, keys: Sequence[tuple[str, str]], **changes: Any) -> None:
    """Create a partitioned table as another writer does."""
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": "shop"})
    table_input: Any = {
        "Name": "events",
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"cost-centre": "7"},
        "PartitionKeys": [{"Name": name, "Type": type_} for name, type_ in keys],
        "StorageDescriptor": {
            "Columns": [{"Name": "id", "Type": "int"}, {"Name": "created_at", "Type": "timestamp"}],
            "Location": f"s3://{BUCKET}/shop/events/",
            "SerdeInfo": {"SerializationLibrary": JSON if changes.pop("json", False) else PARQUET},
        },
    }
    glue.create_table(DatabaseName="shop", TableInput=table_input | changes)


def register(cloud: Cloud, values: Sequence[str], location: str, **changes: Any) -> None:
    """Register a partition as another writer does."""
    partition: Any = {
        "Values": list(values),
        "Parameters": {"theirs": "yes"},
        "StorageDescriptor": {**glue_table(cloud)["StorageDescriptor"], "Location": location, **changes},
    }
    cloud.access.client("glue").create_partition(DatabaseName="shop", TableName="events", PartitionInput=partition)


class Killed(BaseException):
    """The process has ended between two calls."""


@contextmanager
def between_calls(access: AwsAccess, act: Callable[[int, str], object], *services: Any) -> Iterator[None]:
    """Call `act` with the number and the name before each call of these clients."""
    number = iter(range(100_000))

    def notice(event_name: str, **_: object) -> None:
        act(next(number), event_name.rpartition(".")[2])

    for service in services or ("glue", "s3"):
        access.client(service).meta.events.register(f"before-call.{service}", notice)
    try:
        yield
    finally:
        for service in services or ("glue", "s3"):
            access.client(service).meta.events.unregister(f"before-call.{service}", notice)


def calls(access: AwsAccess, do: Callable[[], object]) -> list[str]:
    """The names of the calls to Glue that something makes."""
    made: list[str] = []
    with between_calls(access, lambda _, name: made.append(name), "glue"):
        do()
    return made
