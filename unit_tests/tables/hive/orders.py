"""The Hive table `shop.orders`: syncs into it, other writers, and what readers find."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import Upload
from destination_datalake.config.options import Config
from destination_datalake.config.tables import SchemaConflicts
from destination_datalake.files.plan import DataFile, FileFormat, FilePlan, RewriteTask, Rewritten
from destination_datalake.files.rewrite import publish_rewritten
from destination_datalake.files.rewrite import rewrite as rewrite_on_executors
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.arrow import arrow_field
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Field, Int32, Int64
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.hive.table import HiveTable
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.naming import TableLocation, TableOwner
from destination_datalake.tables.table import Committed, Rewrite, TableName
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.config.examples import options
from unit_tests.tables.jobs import in_process

NAME = TableName("shop", "orders")
ROOT = f"s3://{BUCKET}/shop/orders"
LOCATION = TableLocation(ROOT, f"s3://{BUCKET}/", follow=False)
PARQUET = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
JSON = "org.openx.data.jsonserde.JsonSerDe"
ID = (Field("id", "id", Int32()),)
WIDE = 2**40
"""An id for which the column must become wider."""


def rewrite(tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
    """Rewrite files as executors do."""
    return publish_rewritten([*rewrite_on_executors(tasks)], tasks[0].access)


def no_rewrite(_tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
    raise AssertionError("no file needed to be rewritten")


def during_rewrite(act: Callable[[], object]) -> Rewrite:
    """Act once while files are rewritten, after they were listed."""
    acts = iter([act])

    def rewriting(tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        for action in acts:
            action()
        return rewrite(tasks)

    return rewriting


@dataclass
class Sync:
    """A sync of the stream, its table prepared."""

    table: HiveTable
    access: AwsAccess

    @property
    def folder(self) -> str:
        return self.table.plan().folder

    def columns(self, highest: int) -> tuple[Field, ...]:
        """The columns of a file, with the column `id` as wide as its highest value needs."""
        plan = self.table.plan()
        type_ = {"id": Int64()} if highest >= 2**31 else {}
        return tuple(replace(column, type=type_.get(column.name, column.type)) for column in plan.columns)

    def encode(self, name: str, *ids: int, spool_folder: str | None = None) -> DataFile:
        """A data file as executors write it: pending, in S3 or in a folder, with a column as wide as its values."""
        columns = self.columns(max(ids, default=0))
        return self.upload(f"{self.folder}/{name}", columns, _rows(columns, ids), spool_folder)

    def upload(self, uri: str, columns: tuple[Field, ...], rows: pa.Table, spool_folder: str | None = None) -> DataFile:
        upload = Upload(self.access.client("s3"), uri, deferred=True, spool_folder=spool_folder)
        upload.write(jsonl(rows) if self.table.plan().format == "jsonl" else parquet(rows))
        upload.close()
        return DataFile(upload.uri, upload.written, rows.num_rows, columns, b"", upload.pending_upload)

    def commit(self, name: str, *ids: int, rewrite: Rewrite = rewrite) -> int:
        """Encode and commit until the answer is Committed; return the number of encodings."""
        return self.commit_encoded(lambda: [self.encode(name, *ids)], rewrite)

    def commit_encoded(self, encode: Callable[[], Sequence[DataFile]], rewrite: Rewrite) -> int:
        for times in range(1, 10):
            if self.table.commit(encode(), rewrite) == Committed():
                return times
        raise AssertionError("a batch is encoded again and again")

    def publish(self, rewrite: Rewrite = rewrite) -> None:
        self.table.publish(rewrite)


def parquet(rows: pa.Table) -> bytes:
    body = io.BytesIO()
    pq.write_table(rows, body)
    return body.getvalue()


def jsonl(rows: pa.Table) -> bytes:
    return b"".join(json.dumps(row, default=str).encode() + b"\n" for row in rows.to_pylist())


def _rows(columns: Sequence[Field], ids: Sequence[int]) -> pa.Table:
    return pa.Table.from_pylist([{"id": id} for id in ids], pa.schema([arrow_field(column) for column in columns]))


def prepared(
    name: TableName,
    stream: Stream,
    columns: Sequence[Field],
    format: FileFormat,
    config: Config,
    location: TableLocation,
    access: AwsAccess,
) -> HiveTable:
    """Begin a sync into the table."""
    plan = FilePlan(format, "SNAPPY", tuple(columns), {}, "", False, 1, stream.generation, None)
    context = TableContext(uuid4().hex, access, ungoverned(access), in_process())
    table = HiveTable(name, TableLayout(stream, config, location), plan, TableOwner(stream.id, SNAKE_CASE), context)
    table.prepare()
    return table


SCHEMA = {"properties": {"id": {"type": "integer"}}}


def sync(
    cloud: Cloud,
    *,
    columns: Sequence[Field] = ID,
    generation: int | None = None,
    overwrite: bool = False,
    format: FileFormat = "parquet",
    conflicts: SchemaConflicts = "new_column",
    access: AwsAccess | None = None,
    schema: Mapping[str, Any] = SCHEMA,
    name: TableName = NAME,
) -> Sync:
    """Begin a sync. In tables of other writers it has the columns of `schema`."""
    minimum = generation if overwrite else None
    stream = Stream(
        StreamId("shop", "Orders"), dict(schema), overwrite and generation is None, generation, minimum, None
    )
    access = access or cloud.access
    config = Config.parse(options(bucket_name=BUCKET, table_type="HIVE", schema_conflicts=conflicts))
    location = TableLocation(f"s3://{BUCKET}/{name.database}/{name.table}", f"s3://{BUCKET}/", follow=False)
    return Sync(prepared(name, stream, columns, format, config, location, access), access)


def glue_table(cloud: Cloud, name: str = "orders") -> Any:
    return cloud.access.client("glue").get_table(DatabaseName="shop", Name=name)["Table"]


def update_glue_table(cloud: Cloud, **changes: Any) -> None:
    """Change the Glue table as other writers do, without compare-and-set."""
    table: Any = {
        k: v for k, v in glue_table(cloud).items() if k in ("Name", "Parameters", "StorageDescriptor", "TableType")
    }
    cloud.access.client("glue").update_table(DatabaseName="shop", TableInput=table | changes)


def set_id_type(cloud: Cloud, type_: str) -> None:
    """Change the type of the column `id` as other engines do."""
    storage = glue_table(cloud)["StorageDescriptor"]
    (id,) = [column for column in storage["Columns"] if column["Name"] == "id"]
    id["Type"] = type_
    update_glue_table(cloud, StorageDescriptor=storage)


def columns(cloud: Cloud) -> list[tuple[str, str, str | None]]:
    return [
        (column["Name"], column["Type"], column.get("Comment"))
        for column in glue_table(cloud)["StorageDescriptor"]["Columns"]
    ]


def visible_files(cloud: Cloud) -> list[str]:
    """The names of the objects in the table's location."""
    location = _key_prefix(cloud)
    return sorted(key.removeprefix(location) for key in cloud.objects() if key.startswith(location))


def ids(cloud: Cloud) -> list[int]:
    """The ids that a reader of the table finds. Parquet files must hold them as the catalog says."""
    location = _key_prefix(cloud)
    catalogs = {name: type_ for name, type_, _ in columns(cloud)}
    visible_ids: list[int] = []
    for name in visible_files(cloud):
        body = cloud.objects()[location + name]
        if not body or any(part[:1] in "_." for part in name.split("/")):
            continue
        if body[:4] == b"PAR1":
            rows = pq.read_table(pa.BufferReader(body))
            types = {pa.int32(): "int", pa.int64(): "bigint"}
            assert types[rows.schema.field("id").type] == catalogs["id"], name
            visible_ids += [id for id in rows.column("id").to_pylist() if id is not None]
        else:
            visible_ids += [json.loads(line)["id"] for line in body.splitlines()]
    twice = [id for id, times in Counter(visible_ids).items() if times > 1]
    assert not twice, f"{twice} are duplicated"
    return sorted(visible_ids)


def _key_prefix(cloud: Cloud) -> str:
    location: str = glue_table(cloud)["StorageDescriptor"]["Location"]
    return f"{location.rstrip('/').partition(f'://{BUCKET}/')[2]}/"


def create_foreign_table(cloud: Cloud, **changes: Any) -> None:
    """Create a table as another writer does."""
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": "shop"})
    table_input: Any = {
        "Name": "orders",
        "Description": "Every order.",
        "Owner": "the shop",
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"classification": "parquet", "cost-centre": "7"},
        "StorageDescriptor": {
            "Columns": [
                {"Name": "theirs", "Type": "map<string,int>", "Comment": "Not ours."},
                {"Name": "lines", "Type": "array<struct<sku:string,weight:double>>", "Comment": "What was ordered."},
            ],
            "Location": f"s3://{BUCKET}/elsewhere/",
            "SerdeInfo": {"SerializationLibrary": PARQUET, "Parameters": {"serialization.format": "1"}},
            "SortColumns": [{"Column": "theirs", "SortOrder": 1}],
        },
    }
    glue.create_table(DatabaseName="shop", TableInput=table_input | changes)


def descriptor(**changes: Any) -> Any:
    """The storage descriptor of a foreign table of ids, with changes."""
    return {
        "Columns": [{"Name": "id", "Type": "int"}],
        "Location": f"s3://{BUCKET}/elsewhere/",
        "SerdeInfo": {"SerializationLibrary": PARQUET},
        **changes,
    }


def put(cloud: Cloud, key: str, body: bytes = b"") -> None:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body)


def parquet_of(*ids: int) -> bytes:
    """A Parquet file of another writer: the column `id` only, 32 bits wide."""
    return parquet(_rows(ID, ids))


def create_foreign_table_with_files(cloud: Cloud) -> None:
    """Create a table of another writer with files in several folders, among objects that readers ignore."""
    create_foreign_table(cloud, StorageDescriptor=descriptor())
    for key, body in {
        "elsewhere/part-0.parquet": parquet_of(1),
        "elsewhere/a/part-0.parquet": parquet_of(2),
        "elsewhere/a b+%20/part-0.parquet": parquet_of(3),
        "elsewhere/_SUCCESS": b"",
        "elsewhere/empty": b"",
        "elsewhere/folder/": b"",
        "elsewhere/_temporary/part-1.parquet": b"half of",
        "elsewhere/.part-0.parquet.crc": b"crc",
    }.items():
        put(cloud, key, body)
