"""An Iceberg table on moto's server; its other writers and its readers are PyIceberg.

PyIceberg reads through Arrow's S3 client, which moto cannot patch in-process.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, assert_never
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Summary
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address
from destination_datalake.config.options import Config
from destination_datalake.files.parquet import with_field_ids
from destination_datalake.files.plan import DataFile, FilePlan, RewriteTask, Rewritten, WrittenFile
from destination_datalake.partitioning.spec import PartitionField, PartitionValue, Void
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.arrow import arrow_field
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from destination_datalake.tables.catalog import TableCatalog
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.glue.compare_and_set import METADATA
from destination_datalake.tables.iceberg.branches import remove_merged_branches
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import live_entries, position_deletes_entry
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.naming import TableLocation, TableOwner
from destination_datalake.tables.table import Committed, TableName
from unit_tests.cloud import at_the_next_update, ungoverned
from unit_tests.config.examples import options
from unit_tests.tables.jobs import in_process

STREAM = StreamId("shop", "Orders")
COLUMNS = (Field("id", "id", Int64()),)


_PATH: pa.Field[Any] = pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"})
_POSITION: pa.Field[Any] = pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"})


def _json_schema(type_: ColumnType) -> dict[str, Any]:
    match type_:
        case Struct(fields=fields):
            properties = {field.source: _json_schema(field.type) for field in fields}
            return {"type": "object", "properties": properties, "additionalProperties": False}
        case List(element=element):
            return {"type": "array", "items": _json_schema(element)}
        case Int32() | Int64():
            return {"type": "integer"}
        case Float32() | Float64() | Decimal():
            return {"type": "number"}
        case Boolean():
            return {"type": "boolean"}
        case Date():
            return {"type": "string", "format": "date"}
        case Timestamp(zoned=zoned):
            kind = {} if zoned else {"airbyte_type": "timestamp_without_timezone"}
            return {"type": "string", "format": "date-time", **kind}
        case Json():
            return {}
        case String():
            return {"type": "string"}
        case _:
            assert_never(type_)


class Lake:
    """A bucket of its own, a database, and in it one table, `orders`."""

    def __init__(self, access: AwsAccess) -> None:
        self.access = access
        self.jobs = in_process()
        self.bucket = f"lake-{uuid4().hex[:12]}"
        self.name = TableName(f"shop_{uuid4().hex[:12]}", "orders")
        access.client("s3").create_bucket(Bucket=self.bucket)

    def catalog(self) -> TableCatalog:
        """Return a sync's catalog."""
        return ungoverned(self.access)

    def open(
        self,
        generation: int | None = 1,
        *,
        overwrite: bool = False,
        columns: Sequence[Field] = COLUMNS,
        stream: StreamId = STREAM,
        cursor: str = "",
        key: Sequence[str] = (),
        partition_by: Sequence[Mapping[str, str]] | None = None,
        sort_by: Sequence[Mapping[str, str]] | None = None,
        **more: Any,
    ) -> IcebergTable:
        """Return the prepared table. Without a generation an overwrite is that of a platform without refreshes.

        With a `key` the stream is deduplicated by these fields. `partition_by` and `sort_by` are options of the stream,
        `more` are options of all.
        """
        minimum = None if generation is None else generation if overwrite else 0
        keys = (cursor,) if cursor else ()
        replaces = overwrite and generation is None
        # Of its schema, tables of other writers have columns.
        schema = {"properties": {column.source: _json_schema(column.type) for column in columns}}
        configured = Stream(stream, schema, replaces, generation, minimum, None, keys, bool(key), tuple(key))
        own = {"stream": stream.name, "namespace": stream.namespace, "partition_by": partition_by, "sort_by": sort_by}
        is_wide = any(column.type in (Int64(), Float64()) for column in columns)
        numeric = {"numeric_types": "bigint/double" if is_wide else "int/float"}
        chosen = options(bucket_name=self.bucket, table_type="ICEBERG", streams=[own], **{**numeric, **more})
        plan = FilePlan("parquet", "SNAPPY", tuple(columns), {}, "", False, 1, generation, None)
        location = TableLocation(f"s3://{self.bucket}/orders", f"s3://{self.bucket}/", follow=False)
        opened = IcebergTable(
            self.name,
            TableLayout(configured, Config.parse(chosen), location),
            plan,
            TableOwner(stream, SNAKE_CASE),
            TableContext(uuid4().hex, self.access, self.catalog(), self.jobs),
        )
        opened.prepare()
        return opened

    def write(self, into: IcebergTable, *ids: int, **more: Any) -> DataFile:
        """Write a data file with a row for each id, as the executors do."""
        return self.write_rows(into, *({"id": id_, **more} for id_ in ids))

    def write_rows(
        self,
        into: IcebergTable,
        *rows: Mapping[str, Any],
        columns: Sequence[Field] = (),
        partition: Sequence[PartitionValue] = (),
        statistics: bool = True,
    ) -> DataFile:
        """Write a data file with these rows of one partition, in the plan's columns or in `columns`."""
        plan = into.plan()
        columns = tuple(columns) or plan.columns
        schema = pa.schema([arrow_field(field) for field in (*plan.metadata, *columns)])
        schema = with_field_ids(schema, plan.field_ids)
        body, footer = io.BytesIO(), io.BytesIO()
        with pq.ParquetWriter(body, schema, store_schema=False, write_statistics=statistics) as writer:
            table = pa.Table.from_pylist([*rows], schema=schema)
            writer.write_table(table)
        writer.writer.metadata.write_metadata_file(footer)
        folder, spec_id = "", 0
        if plan.partitioning is not None:
            folder, spec_id = f"{plan.partitioning.path.folder(partition)}/", plan.partitioning.spec_id
        uri = self.put(body.getvalue(), folder)
        nulls = frozenset(name for name in table.column_names if table.column(name).null_count)
        size = len(body.getvalue())
        ordered = plan.sort_order is not None
        return DataFile(
            uri, size, len(rows), columns, footer.getvalue(), None, nulls, tuple(partition), spec_id, ordered
        )

    def write_partitions(
        self, into: IcebergTable, *rows: Mapping[str, Any], columns: Sequence[Field] = ()
    ) -> list[DataFile]:
        """Write a file for each partition of the rows, by PyIceberg's transforms.

        The files have no statistics, so readers can only go by the partitions.
        """
        assigned, schema = into.plan().partitioning, self.load().schema()
        if assigned is None:
            return [self.write_rows(into, *rows, columns=columns, statistics=False)]
        files: dict[tuple[PartitionValue, ...], list[Mapping[str, Any]]] = {}
        for row in rows:
            files.setdefault(tuple(_value(field, row, schema) for field in assigned.fields), []).append(row)
        return [
            self.write_rows(into, *partition_rows, columns=columns, partition=partition, statistics=False)
            for partition, partition_rows in files.items()
        ]

    def commit_rows(self, into: IcebergTable, *rows: Mapping[str, Any]) -> None:
        assert into.commit(self.write_partitions(into, *rows), no_rewrite) == Committed()

    def commit(self, into: IcebergTable, *ids: int, **more: Any) -> None:
        assert into.commit([self.write(into, *ids, **more)], no_rewrite) == Committed()

    def load(self) -> PyIcebergTable:
        """Load the table as another engine does."""
        return self._catalog().load_table(self.name)

    def create(self, schema: Schema, **options: Any) -> PyIcebergTable:
        """Create the table as another engine does; `options` as PyIceberg's `create_table` has them."""
        self.access.client("glue").create_database(DatabaseInput={"Name": self.name.database})
        return self._catalog().create_table(self.name, schema, location=f"s3://{self.bucket}/orders", **options)

    def append(self, *ids: int) -> None:
        """Append rows as another engine does."""
        self.load().append(pa.table({"id": pa.array(ids, pa.int64())}))

    def scanned(self, row_filter: str, branch: str = MAIN_BRANCH) -> int:
        """Return how many of the branch's data files a reader with this filter plans to read."""
        table = self.load()
        scan = table.scan(row_filter=row_filter, snapshot_id=table.metadata.refs[branch].snapshot_id)
        return len(list(scan.plan_files()))

    def manifests(self, branch: str = MAIN_BRANCH) -> list[ManifestFile]:
        """Return the manifests of a branch's head."""
        table = self.load()
        snapshot = table.metadata.snapshot_by_id(table.metadata.refs[branch].snapshot_id)
        assert snapshot is not None
        return snapshot.manifests(table.io)

    def entries(
        self, content: ManifestContent = ManifestContent.DATA, branch: str = MAIN_BRANCH
    ) -> list[ManifestEntry]:
        """Return the live entries of a branch, in the order of their sequence numbers."""
        manifests, io = self.manifests(branch), self.load().io
        entries = [
            entry for manifest in manifests if manifest.content == content for entry in live_entries(manifest, io)
        ]
        return sorted(entries, key=lambda entry: entry.sequence_number or 0)

    def files(self, branch: str = MAIN_BRANCH) -> list[IcebergFile]:
        """Return the live data files of a branch."""
        return [entry.data_file for entry in self.entries(branch=branch)]

    def deletes(self) -> list[IcebergFile]:
        """Return the live delete files."""
        return [entry.data_file for entry in self.entries(ManifestContent.DELETES)]

    def specs_of_files(self, branch: str = MAIN_BRANCH) -> list[int]:
        """Return the partition spec of each live data file of a branch."""
        return sorted(file.spec_id for file in self.files(branch))

    def summary(self) -> Summary:
        """Return what the table's last snapshot says of itself."""
        snapshot = self.load().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return snapshot.summary

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        """Return the rows that a reader finds, in no particular order."""
        table_rows = self.load().scan(selected_fields=columns or ("*",)).to_arrow().to_pylist()
        # PyIceberg reads a list of structs that is null as an empty one, and as null if the file lacks the column.
        rows = ({name: None if value == [] else value for name, value in row.items()} for row in table_rows)
        return sorted(rows, key=repr)

    def ids(self, branch: str = MAIN_BRANCH) -> list[int]:
        """Return the ids that a reader of the branch finds."""
        table = self.load()
        if branch not in table.metadata.refs:
            return []
        rows = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).to_arrow()
        return sorted(row["id"] for row in rows.to_pylist())

    def delete_first_row(self, branch: str = MAIN_BRANCH) -> None:
        """Delete the first row of a branch's first file by a delete file (merge-on-read), as another engine does."""
        table = self.load()
        [first, *_] = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).plan_files()
        body = io.BytesIO()
        pq.write_table(
            pa.Table.from_pylist([{"file_path": first.file.file_path, "pos": 0}], pa.schema([_PATH, _POSITION])), body
        )
        self.add_deletes(body.getvalue(), branch, first.file, content=DataFileContent.POSITION_DELETES)

    def delete_by_equality(self, branch: str = MAIN_BRANCH) -> None:
        """Delete rows of a branch by their ids, as engines do that do not read first. PyIceberg cannot read it."""
        body = io.BytesIO()
        id_: pa.Field[Any] = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
        pq.write_table(pa.Table.from_pylist([{"id": 0}], pa.schema([id_])), body)
        self.add_deletes(body.getvalue(), branch, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])

    def position_deletes(self, data_file: IcebergFile, positions: Sequence[int]) -> IcebergFile:
        """Write a file of position deletes of one data file; return its entry."""
        body = io.BytesIO()
        paths = [data_file.file_path] * len(positions)
        pq.write_table(pa.table({"file_path": paths, "pos": positions}, pa.schema([_PATH, _POSITION])), body)
        uri = self.put(body.getvalue(), "deletes/")
        return position_deletes_entry(WrittenFile(uri, len(body.getvalue()), len(positions), b""), data_file)

    def merge(self, change: Change, branch: str = MAIN_BRANCH, without_branch: str | None = None) -> None:
        """Change a branch in one snapshot; in the same commit forget another one, of what was pending."""
        table = self.load()
        with table.transaction() as transaction:
            change_branch(change, branch, table, transaction, {"airbyte.sync-id": "7"})
            if without_branch is not None:
                remove_merged_branches([without_branch], transaction)

    def add_deletes(self, body: bytes, branch: str, data_file: IcebergFile | None = None, **more: Any) -> None:
        """Add a delete file of one row that applies to all files of `data_file`'s partition; without it, of all."""
        file = IcebergFile.from_args(
            file_path=self.put(body),
            file_format=FileFormat.PARQUET,
            partition=Record() if data_file is None else data_file.partition,
            record_count=1,
            file_size_in_bytes=len(body),
            **more,
        )
        file.spec_id = 0 if data_file is None else data_file.spec_id
        self.merge(Change([file]), branch)

    def edit_metadata(self, changes: Mapping[str, Any]) -> None:
        """Change the table's metadata file in ways that PyIceberg does not support."""
        location = self.load().metadata_location
        self.write_object(location, json.dumps({**json.loads(self.read_object(location)), **changes}).encode())
        METADATA.forget(location)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        with self.load().transaction() as transaction:
            transaction.set_properties(dict(properties))

    def compact_and_expire(self) -> None:
        """Compact the table and expire all snapshots that no branch refers to, as maintenance does."""
        table = self.load()
        rows = table.scan().to_arrow()
        with table.transaction() as transaction:
            transaction.delete(AlwaysTrue())
            transaction.append(rows)
        table = self.load()
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in heads]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def properties(self) -> dict[str, str]:
        return dict(self.load().properties)

    def branches(self) -> list[str]:
        return [name for name in self._refs(SnapshotRefType.BRANCH) if name != MAIN_BRANCH]

    def tags(self) -> list[str]:
        return self._refs(SnapshotRefType.TAG)

    def _refs(self, type_: SnapshotRefType) -> list[str]:
        return sorted(name for name, ref in self.load().metadata.refs.items() if ref.snapshot_ref_type == type_)

    def read_object(self, uri: str) -> bytes:
        address = S3Address.parse(uri)
        return self.access.client("s3").get_object(Bucket=address.bucket, Key=address.key)["Body"].read()

    def write_object(self, uri: str, body: bytes) -> None:
        address = S3Address.parse(uri)
        self.access.client("s3").put_object(Bucket=address.bucket, Key=address.key, Body=body)

    def delete_object(self, uri: str) -> None:
        address = S3Address.parse(uri)
        self.access.client("s3").delete_object(Bucket=address.bucket, Key=address.key)

    def uris(self, ending: str = "") -> set[str]:
        """Return the URIs of the bucket's objects whose names end so."""
        return {f"s3://{self.bucket}/{key}" for key in self.objects() if key.endswith(ending)}

    def objects(self) -> set[str]:
        s3 = self.access.client("s3")
        return {entry["Key"] for entry in s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])}

    def at_the_next_update(self, act: Callable[[], object], *, response_lost: bool = False) -> None:
        """Call `act` just before the next update of the Glue table; or after it, and lose the update's response."""
        at_the_next_update(self.access, act, response_lost=response_lost)

    def put(self, body: bytes, folder: str = "") -> str:
        """Put a Parquet file into a folder of the table's data and return its URI."""
        uri = f"s3://{self.bucket}/orders/data/{folder}{uuid4().hex}.parquet"
        self.write_object(uri, body)
        return uri

    def _catalog(self) -> GlueCatalog:
        properties = {
            "s3.endpoint": str(self.access.endpoint_url),
            "s3.access-key-id": ACCESS_KEY_ID,
            "s3.secret-access-key": SECRET_ACCESS_KEY,
            "s3.region": REGION,
        }
        return GlueCatalog("other", client=self.access.client("glue"), **properties)


def no_rewrite(_tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
    raise AssertionError("no column was promoted to double")


def _value(field: PartitionField, row: Mapping[str, Any], schema: Schema) -> PartitionValue:
    """Return the value of a partition field for a row, by PyIceberg's transform."""
    if field.transform == Void():
        return None
    value: Any = row
    for name in field.source:
        value = value and value.get(name)
    type_ = schema.find_type(".".join(field.source))
    if isinstance(value, datetime):
        value = datetime_to_micros(value)
    elif isinstance(value, date):
        value = date_to_days(value)
    transform = parse_transform(str(field.transform))
    result: PartitionValue = transform.transform(type_)(value)
    return result
