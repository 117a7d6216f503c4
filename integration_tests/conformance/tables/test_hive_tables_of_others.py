"""Hive tables that others made, or that were there before: what is written to, what is refused, what comes back."""

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

COMPLETE = status("orders", "COMPLETE")
ORDERS = configured_stream("orders", object_schema(id=INTEGER))
WIDE = 2**40
(HIVE_PARQUET,) = [kind for kind in TABLE_KINDS if kind.name == "hive-parquet"]
FOREVER = datetime(9999, 12, 31, 23, 59, 59, 999999)
PARQUET = "org.apache.hadoop.hive.ql.io.parquet"


def create(warehouse: Warehouse, **storage: Any) -> str:
    """Make the table as Hive does, in a folder of its own; return the folder's key."""
    lake = warehouse.lake
    lake.glue.create_database(DatabaseInput={"Name": lake.database})
    table: Any = {
        "Name": "orders",
        "TableType": "EXTERNAL_TABLE",
        "StorageDescriptor": {
            "Columns": [{"Name": "id", "Type": "int"}, {"Name": "at", "Type": "timestamp"}],
            "Location": f"s3://{lake.bucket}/lake/theirs/",
            "InputFormat": f"{PARQUET}.MapredParquetInputFormat",
            "OutputFormat": f"{PARQUET}.MapredParquetOutputFormat",
            "SerdeInfo": {"SerializationLibrary": f"{PARQUET}.serde.ParquetHiveSerDe"},
            **storage,
        },
    }
    lake.glue.create_table(DatabaseName=lake.database, TableInput=table)
    return "lake/theirs"


def file_of(id: int) -> bytes:
    """A Parquet file as Spark and Hive write it, its timestamps as INT96."""
    rows = pa.table({"id": pa.array([id], pa.int32()), "at": pa.array([FOREVER], pa.timestamp("us"))})
    body = io.BytesIO()
    pq.write_table(rows, body, use_deprecated_int96_timestamps=True)
    return body.getvalue()


@pytest.mark.parametrize("table_kind", [HIVE_PARQUET], ids=lambda kind: kind.name)
def test_files_of_others_become_wider_whatever_lies_beside_them(warehouse: Warehouse) -> None:
    """Files of one name in two folders, timestamps that nanoseconds cannot hold, markers and empty objects."""
    folder = create(warehouse)
    files = {"part-0": file_of(1), "a/part-0": file_of(2), "_SUCCESS": b"", "empty": b"", "_tmp/part-1": b"half"}
    for name, body in files.items():
        warehouse.lake.s3.put_object(Bucket=warehouse.lake.bucket, Key=f"{folder}/{name}", Body=body)

    warehouse.sync([ORDERS], [record("orders", {"id": WIDE}), state("orders", 1), COMPLETE])

    at = {row["id"]: row["at"] for row in warehouse.whole_rows("orders")}
    assert at == {1: FOREVER.replace(tzinfo=UTC), 2: FOREVER.replace(tzinfo=UTC), WIDE: None}
    left = {key for key in warehouse.lake.objects() if key.startswith(f"{folder}/")}
    assert left == {f"{folder}/{name}" for name in files}, "what others put there stays"


@pytest.mark.parametrize("table_kind", [HIVE_PARQUET], ids=lambda kind: kind.name)
def test_a_table_that_an_engine_would_misread_is_refused_before_anything_is_written(warehouse: Warehouse) -> None:
    """The reason names the property and what to do."""
    create(warehouse, BucketColumns=["id"], NumberOfBuckets=4)
    before = warehouse.lake.glue_table(warehouse.lake.database, "orders")

    run = warehouse.attempt([ORDERS], [record("orders", {"id": 1}), state("orders", 1), COMPLETE])

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "it is bucketed by id (BucketColumns)" in error["message"]
    assert "Set another table_prefix" in error["message"]
    assert run.states == []
    assert warehouse.lake.glue_table(warehouse.lake.database, "orders") == before


@pytest.mark.parametrize("first", TABLE_KINDS, ids=lambda kind: f"after {kind.name}")
@pytest.mark.parametrize("table_kind", [HIVE_PARQUET], ids=lambda kind: kind.name)
def test_a_table_that_was_dropped_comes_again_without_its_old_rows(warehouse: Warehouse, first: Any) -> None:
    """Also where its name was another kind of table's, whose files lie where its own would."""
    lake = warehouse.lake
    warehouse.sync([ORDERS], [record("orders", {"id": 1}), COMPLETE], **first.options)
    lake.glue.delete_table(DatabaseName=lake.database, Name="orders")

    warehouse.sync([ORDERS], [record("orders", {"id": 2}), COMPLETE])

    assert warehouse.ids("orders") == [2]
