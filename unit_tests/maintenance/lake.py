"""An Iceberg table of the connector's in an account inside the test's process, and what readers find in it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.config.options import Config
from destination_datalake.config.tables import Retention
from destination_datalake.files.parquet import with_field_ids
from destination_datalake.files.plan import DataFile, RewriteTask, Rewritten
from destination_datalake.files.rewrite import compact
from destination_datalake.maintenance.report import StepReport
from destination_datalake.maintenance.steps import Maintainer
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.arrow import arrow_field
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.factory import open_table
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import Table, TableName
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.config.examples import options
from unit_tests.tables.jobs import in_process

ORDERS = StreamId("shop", "orders")
SCHEMA = {"properties": {"id": {"type": "integer"}}}


class Shop:
    """Tables of one configuration."""

    def __init__(self, cloud: Cloud, **changes: Any) -> None:
        self.cloud = cloud
        self.access = cloud.access
        self.config = Config.parse(options(bucket_name=BUCKET, bucket_prefix="lake", **changes))
        self._numbers = iter(range(1_000_000))

    def open(self, stream: StreamId = ORDERS, generation: int = 1, *, overwrite: bool = False) -> Table:
        """Return a stream's table, prepared as by a sync."""
        configured = Stream(stream, SCHEMA, False, generation, generation if overwrite else 0, None, ())
        context = TableContext(f"sync{next(self._numbers)}", self.access, ungoverned(self.access), in_process())
        table = open_table(configured, self.name(stream), self.config, context)
        table.prepare()
        return table

    def name(self, stream: StreamId = ORDERS) -> TableName:
        return TableNaming.from_config(self.config).table_of(stream)

    def write(self, into: Table, *ids: int) -> DataFile:
        """Write a data file with a row for each id, as executors do."""
        plan = into.plan()
        schema = pa.schema([arrow_field(field) for field in (*METADATA_COLUMNS, *plan.columns)])
        schema = with_field_ids(schema, plan.field_ids)
        body, footer = io.BytesIO(), io.BytesIO()
        with pq.ParquetWriter(body, schema, store_schema=False) as writer:
            writer.write_table(pa.Table.from_pylist([{"id": id_} for id_ in ids], schema=schema))
        writer.writer.metadata.write_metadata_file(footer)
        uri = f"{plan.folder}/{next(self._numbers):06d}.parquet"
        key = uri.removeprefix(f"s3://{BUCKET}/")
        self.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body.getvalue())
        nulls = frozenset(field.name for field in METADATA_COLUMNS)
        return DataFile(uri, len(body.getvalue()), len(ids), plan.columns, footer.getvalue(), None, nulls)

    def set_metadata_location(self, location: str, stream: StreamId = ORDERS) -> None:
        """Make Glue's entry of a table refer to this metadata file."""
        glue, name = self.access.client("glue"), self.name(stream)
        entry = glue.get_table(DatabaseName=name.database, Name=name.table)["Table"]
        table_input: Any = {key: entry[key] for key in ("Name", "TableType", "StorageDescriptor")}
        table_input["Parameters"] = {**entry["Parameters"], "metadata_location": location}
        glue.update_table(DatabaseName=name.database, TableInput=table_input, SkipArchive=True)

    def commit(self, into: Table, *ids: int) -> None:
        into.commit([self.write(into, *ids)], no_rewrite)

    def ids(self, stream: StreamId = ORDERS, ref: str = "main") -> list[int]:
        """Return what a reader of a branch or tag finds."""
        table = TableOperations(self.name(stream), ungoverned(self.access)).load()
        if ref not in table.metadata.refs:
            return []
        rows = table.scan(snapshot_id=table.metadata.refs[ref].snapshot_id).to_arrow()
        return sorted(row["id"] for row in rows.to_pylist())

    def refs(self, stream: StreamId = ORDERS) -> dict[str, list[int]]:
        """Return what readers of every branch and tag find."""
        table = TableOperations(self.name(stream), ungoverned(self.access)).load()
        return {ref: self.ids(stream, ref) for ref in table.metadata.refs}

    def objects(self) -> set[str]:
        s3 = self.access.client("s3")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {entry["Key"] for page in pages for entry in page.get("Contents", [])}

    def maintainer(self, after: timedelta = timedelta(days=6), **changes: Any) -> Maintainer:
        """Return what maintains the tables so long after now, with jobs on this thread."""
        given: dict[str, Any] = {
            "retention": Retention(),
            "target_bytes": 128 * 1024 * 1024,
            "catalog": ungoverned(self.access),
            "compact_files": lambda tasks: list(compact(tasks)),
            "should_continue": lambda: True,
            "now": lambda: datetime.now(UTC) + after,
            **changes,
        }
        return Maintainer(**given)

    def put(self, key: str, body: bytes = b"x") -> str:
        self.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body)
        return key


def worn(shop: Shop) -> None:
    """A table of seven small files, of which one was replaced by the others, and with an orphan."""
    shop.commit(shop.open(), 100)
    new = shop.open(generation=2, overwrite=True)
    for id_ in range(6):
        shop.commit(new, id_)
    new.publish(no_rewrite)
    shop.put("lake/shop/orders/data/lost.parquet")


def run(maintains: Maintainer, table: TableName) -> list[StepReport]:
    """Take every step."""
    return [maintains.compact(table), *maintains.remove(table)]


def no_rewrite(_tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
    raise AssertionError("no column was promoted to double")
