"""Tables as Airbyte's S3 Data Lake destination left them, by what its published code does.

Metadata columns and keys are required, times of extraction are milliseconds, keys are identifier fields and the sort
order, objects are JSON text. Each sync writes to a staging branch, which becomes main; in syncs with deduplication, the
former rows of its keys are deleted by equality. PyIceberg writes what Iceberg's Java library wrote there.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, ListType, LongType, NestedField, StringType, StructType

from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import EMITTED_AT

STAGING = "airbyte_staging"

Row = Mapping[str, Any]

_CHANGE = StructType(
    NestedField(8, "field", StringType(), required=True),
    NestedField(9, "change", StringType(), required=True),
    NestedField(10, "reason", StringType(), required=True),
)
_META = StructType(
    NestedField(5, "sync_id", LongType(), required=True),
    NestedField(6, "changes", ListType(7, _CHANGE, element_required=True), required=True),
)
_METADATA: Mapping[str, IcebergType] = {
    "_airbyte_raw_id": StringType(),
    "_airbyte_extracted_at": LongType(),
    "_airbyte_meta": _META,
    "_airbyte_generation_id": LongType(),
}


@dataclass(frozen=True)
class S3DataLake:
    """That connector, writing one table into a lake's database."""

    lake: Lake
    name: str
    key: Sequence[str] = ()
    deletes: bool = True
    """Whether former rows of a key are deleted by equality."""

    def create(self, types: Mapping[str, IcebergType]) -> None:
        """Create the table with columns of these types, as before a first sync. Ids are assigned by the catalog."""
        fields = [
            NestedField(id_, name, type_, required=name in (*_METADATA, *self.key))
            for id_, (name, type_) in zip((1, 2, 3, 4, *range(11, 99)), {**_METADATA, **types}.items(), strict=False)
        ]
        ids = {field.name: field.field_id for field in fields}
        keys = [ids[name] for name in self.key]
        order = SortOrder(*(SortField(id_, IdentityTransform()) for id_ in keys))
        self.lake.glue.create_database(DatabaseInput={"Name": self.lake.database})
        schema = Schema(*fields, identifier_field_ids=keys)
        self.lake.create_iceberg_table(
            self.lake.database, self.name, schema, order, {"write.format.default": "parquet"}
        )

    def sync(self, *rows: Row, succeeds: bool = True, branch: str = STAGING) -> None:
        """Write rows; if there is a key, delete former ones by it. Publish them if the sync succeeds."""
        if self.table().current_snapshot() is None:
            self._append((), MAIN_BRANCH)
        if branch not in self.table().refs():
            head = self.table().metadata.refs[MAIN_BRANCH].snapshot_id
            self.table().manage_snapshots().create_branch(head, branch).commit()
        if self.key and self.deletes:
            self._delete_by_equality(rows, branch)
        self._append(rows, branch)
        if succeeds:
            head = self.table().metadata.refs[branch].snapshot_id
            self.table().manage_snapshots().create_branch(head, MAIN_BRANCH).commit()

    def table(self) -> Table:
        """Return the table as it is now."""
        return self.lake.iceberg_table(self.lake.database, self.name)

    def _append(self, rows: Iterable[Row], branch: str) -> None:
        table = self.table()
        metadata = {
            "_airbyte_extracted_at": int(EMITTED_AT) - 1000,
            "_airbyte_meta": {"sync_id": 1, "changes": []},
            "_airbyte_generation_id": 0,
        }
        whole = [{"_airbyte_raw_id": str(uuid4()), **metadata, **row} for row in rows]
        table.append(pa.Table.from_pylist(whole, schema_to_pyarrow(table.schema())), branch=branch)

    def _delete_by_equality(self, rows: Iterable[Row], branch: str) -> None:
        table, body = self.table(), io.BytesIO()
        ids = [table.schema().find_field(name).field_id for name in self.key]
        schema = schema_to_pyarrow(table.schema().select(*self.key))
        keys = pa.Table.from_pylist([{name: row[name] for name in self.key} for row in rows], schema)
        pq.write_table(keys, body)
        path = f"{table.location()}/data/00000-0-{uuid4()}-00001-ab-generation-id-0-e.parquet"
        key = path.removeprefix(f"s3://{self.lake.bucket}/")
        self.lake.s3.put_object(Bucket=self.lake.bucket, Key=key, Body=body.getvalue())
        file = DataFile.from_args(
            content=DataFileContent.EQUALITY_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(keys),
            file_size_in_bytes=len(body.getvalue()),
            equality_ids=ids,
        )
        file.spec_id = 0
        with table.transaction() as transaction:
            change_branch(Change([file]), branch, table, transaction)


def as_json(value: object) -> str:
    """Return the text that it keeps for an object."""
    return json.dumps(value, separators=(",", ":"))
