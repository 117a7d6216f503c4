"""Creation of Hive tables in the Glue Data Catalog, with names in any script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.schema.types import Field, Int32, String, Struct
from destination_datalake.tables.glue.creation import create_hive_table
from destination_datalake.tables.glue.database import ensure_database
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account

NAME = TableName("público", "京都")
COLUMNS = (
    Field("id", "id", Int32()),
    Field("größe", "Größe\n(cm)", Struct((Field("高さ", "高さ", Int32()),))),
    Field("x" * 255, "X" * 300, String()),
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        ensure_database(account.access.client("glue"), NAME.database)
        yield account


def created(cloud: Cloud, format: FileFormat, codec: str, columns: tuple[Field, ...] = COLUMNS) -> dict[str, Any]:
    plan = FilePlan(format, codec, (), {}, "", True, 1, None, None)
    create_hive_table(NAME, columns, [], f"s3://{BUCKET}/t/data/", {"owner": "us"}, plan, cloud.access)
    table: dict[str, Any] = cloud.access.client("glue").get_table(DatabaseName=NAME.database, Name=NAME.table)["Table"]  # type: ignore[assignment]
    return table


@pytest.mark.parametrize(
    ("format", "codec", "classification", "compression"),
    [
        ("parquet", "SNAPPY", "parquet", "snappy"),
        ("parquet", "UNCOMPRESSED", "parquet", "none"),
        ("jsonl", "GZIP", "json", "gzip"),
        ("jsonl", "UNCOMPRESSED", "json", "none"),
    ],
)
def test_new_table_describes_its_files(
    cloud: Cloud, format: FileFormat, codec: str, classification: str, compression: str
) -> None:
    table = created(cloud, format, codec)

    assert (table["TableType"], table["PartitionKeys"]) == ("EXTERNAL_TABLE", [])
    assert table["Parameters"] == {
        "classification": classification,
        "compressionType": compression,
        "typeOfData": "file",
        "projection.enabled": "false",
        "owner": "us",
    }
    assert table["StorageDescriptor"]["Compressed"] == (compression != "none")


def test_columns_have_their_names_and_the_keys_in_the_record_as_comments(cloud: Cloud) -> None:
    table = created(cloud, "parquet", "SNAPPY")

    assert table["Name"] == "京都"
    columns = [
        (column["Name"], column["Type"], column.get("Comment")) for column in table["StorageDescriptor"]["Columns"]
    ]
    assert columns == [
        ("id", "int", None),
        ("größe", "struct<高さ:int>", "Größe\ufffd(cm)"),
        ("x" * 255, "string", "X" * 252 + "…"),
    ]


def test_existing_table_is_left_unchanged(cloud: Cloud) -> None:
    before = created(cloud, "parquet", "SNAPPY")

    assert created(cloud, "jsonl", "GZIP", COLUMNS[:1]) == before
