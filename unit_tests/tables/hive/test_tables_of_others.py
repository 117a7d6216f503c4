"""Hive tables of others: those that this connector must not write to, and what it leaves of the rest."""

from __future__ import annotations

import io
from typing import Any

import pyarrow.parquet as pq
import pytest

from destination_datalake.files.plan import FileFormat
from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.tables.orders import (
    JSON,
    PARQUET,
    WIDE,
    columns,
    create,
    entry,
    ids,
    parquet_of,
    put,
    sync,
    theirs,
    visible,
)

HIVE = "org.apache.hadoop.hive.ql.io"
BUCKETED = {"BucketColumns": ["id"], "NumberOfBuckets": 4}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Parameters": {"table_type": "iceberg"}}, "it is an Iceberg table and table_type is HIVE"),
        ({"Parameters": {"table_type": "DELTA"}}, "its parameter table_type is DELTA"),
        ({"Parameters": {"table_type": "HUDI"}}, "its parameter table_type is HUDI"),
        ({"Parameters": {"spark.sql.sources.provider": "hudi"}}, "its parameter spark.sql.sources.provider is hudi"),
        ({"Parameters": {"spark.sql.sources.provider": "parquet"}}, "spark.sql.sources.provider is parquet"),
        ({"Parameters": {"transactional": "true"}}, "its parameter transactional is true"),
        ({"Parameters": {"parquet.column.index.access": "true"}}, "its property parquet.column.index.access is true"),
        ({"TableType": "VIRTUAL_VIEW"}, "it is a view (TableType VIRTUAL_VIEW)"),
        ({"TableType": "GOVERNED"}, "it is a governed table"),
        ({"TargetTable": {"CatalogId": "1", "DatabaseName": "a", "Name": "b"}}, "a resource link (TargetTable) to a.b"),
        ({"PartitionKeys": [{"Name": "day", "Type": "date"}]}, "it is partitioned"),
        (theirs(SerdeInfo={"SerializationLibrary": JSON}), f"its files are read by {JSON}, not as parquet"),
        ({"StorageDescriptor": {}}, "its files are read by no SerDe, not as parquet"),
        (theirs(InputFormat=f"{HIVE}.SymlinkTextInputFormat"), f"its InputFormat is {HIVE}.SymlinkTextInputFormat"),
        (theirs(InputFormat="org.apache.hudi.hadoop.HoodieParquetInputFormat"), "its InputFormat is org.apache.hudi"),
        (theirs(**BUCKETED), "it is bucketed by id (BucketColumns)"),
        (theirs(StoredAsSubDirectories=True), "(StoredAsSubDirectories)"),
        (theirs(Location=""), "it has no location"),
        (theirs(Location="hdfs://cluster/orders"), "its location hdfs://cluster/orders is not in S3"),
        (theirs(Location=f"s3://{BUCKET}"), f"its location s3://{BUCKET} is a whole bucket"),
        (theirs(Location=f"s3://{BUCKET}/"), "is a whole bucket"),
        (theirs(Location=f"s3://{BUCKET}/a//b"), "has a folder without a name"),
        (theirs(Location=f"s3://{BUCKET}/a//"), "has a folder without a name"),
        (theirs(Location=f"s3://{BUCKET}/a/../b"), "or one called . or .."),
        (theirs(Columns=[{"Name": "_airbyte_meta", "Type": "string"}]), "its column _airbyte_meta has another type"),
        (
            theirs(SerdeInfo={"SerializationLibrary": PARQUET, "Parameters": {"Parquet.Column.Index.Access": "TRUE"}}),
            "its property parquet.column.index.access is TRUE",
        ),
    ],
)
def test_a_table_that_cannot_take_the_stream_is_refused_and_left_as_it_is(
    cloud: Cloud, changes: dict[str, Any], said: str
) -> None:
    create(cloud, **({"StorageDescriptor": changes} if "SerdeInfo" in changes else changes))
    before = entry(cloud)

    with pytest.raises(TableConflict) as refused:
        sync(cloud)

    assert str(refused.value).startswith("Cannot write stream shop.Orders to table shop.orders: ")
    assert said in str(refused.value)
    assert entry(cloud) == before


@pytest.mark.parametrize(
    ("parameters", "serde", "property"),
    [
        ({"skip.header.line.count": "1"}, {}, "skip.header.line.count"),
        ({}, {"mapping.id": "ID"}, "mapping.id"),
        ({}, {"timestamp.formats": "dd/MM/yyyy"}, "timestamp.formats"),
    ],
)
def test_json_lines_are_not_written_where_they_would_be_read_as_something_else(
    cloud: Cloud, parameters: dict[str, str], serde: dict[str, str], property: str
) -> None:
    reading = {"SerializationLibrary": JSON, "Parameters": serde}
    create(cloud, Parameters=parameters, StorageDescriptor=theirs(SerdeInfo=reading))

    with pytest.raises(TableConflict, match=f"its property {property} is .*Remove that property"):
        sync(cloud, format="jsonl")


@pytest.mark.parametrize(
    ("format", "parameters", "storage"),
    [
        ("parquet", {"table_type": ""}, {"InputFormat": f"{HIVE}.parquet.MapredParquetInputFormat"}),
        ("parquet", {"spark.sql.create.version": "4.0.1", "transactional": "false"}, {"NumberOfBuckets": -1}),
        (
            "jsonl",
            {"skip.header.line.count": "0", "classification": "json"},
            {
                "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
                "SerdeInfo": {"SerializationLibrary": JSON, "Parameters": {"paths": "id", "dots.in.keys": "true"}},
            },
        ),
    ],
)
def test_tables_as_others_usually_make_them_are_taken(
    cloud: Cloud, format: FileFormat, parameters: dict[str, str], storage: dict[str, Any]
) -> None:
    create(cloud, Parameters=parameters, StorageDescriptor=theirs(**storage))

    sync(cloud, format=format).commit("one", 1)

    assert ids(cloud) == [1]


def test_the_partitions_of_a_table_that_is_refused_stay_as_they_are(cloud: Cloud) -> None:
    create(cloud, PartitionKeys=[{"Name": "day", "Type": "date"}])
    glue = cloud.access.client("glue")
    theirs: Any = {
        "Values": ["2024-02-29"],
        "Parameters": {"theirs": "yes"},
        "StorageDescriptor": {
            "Columns": [{"Name": "theirs", "Type": "map<string,int>", "Comment": "Not ours."}],
            "Location": f"s3://{BUCKET}/elsewhere/day=2024-02-29/",
            "SerdeInfo": {"SerializationLibrary": PARQUET, "Parameters": {"serialization.format": "1"}},
        },
    }
    glue.create_partition(DatabaseName="shop", TableName="orders", PartitionInput=theirs)
    before = glue.get_partitions(DatabaseName="shop", TableName="orders")["Partitions"]

    with pytest.raises(TableConflict):
        sync(cloud)

    assert glue.get_partitions(DatabaseName="shop", TableName="orders")["Partitions"] == before


# --- Their files, when columns become wider


def foreign_files(cloud: Cloud) -> None:
    """What Spark and a careless hand leave in a folder."""
    create(cloud, StorageDescriptor=theirs())
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


def test_files_of_one_name_in_several_folders_all_become_wider_and_what_is_no_file_does_not_matter(
    cloud: Cloud,
) -> None:
    foreign_files(cloud)

    sync(cloud).commit("wide", WIDE)

    assert ids(cloud) == [1, 2, 3, WIDE]
    assert visible(cloud) == ["a b+%20/part-0.parquet", "a/part-0.parquet", "part-0.parquet", "wide"]


def test_a_folder_of_others_stays_as_it_is_when_the_table_has_moved_out_of_it(cloud: Cloud) -> None:
    foreign_files(cloud)
    before = {key: body for key, body in cloud.objects().items() if key.startswith("elsewhere/")}

    for id in range(3):
        syncing = sync(cloud)
        syncing.commit(f"new-{id}", WIDE + id)
        syncing.publish()
    sync(cloud, replaces=True).publish()
    sync(cloud).publish()

    assert before.items() <= cloud.objects().items()


def test_a_replacement_of_a_table_around_ours_is_not_made_inside_it(cloud: Cloud) -> None:
    """Its readers would see the replacement before it is published."""
    create(cloud, StorageDescriptor=theirs(Location=f"s3://{BUCKET}/shop"))
    put(cloud, "shop/theirs.parquet", parquet_of(1))

    replacing = sync(cloud, replaces=True)
    replacing.commit("new", 2)

    assert ids(cloud) == [1]
    replacing.publish()
    assert ids(cloud) == [2]


def test_rows_and_columns_of_others_are_in_the_wider_files(cloud: Cloud) -> None:
    foreign_files(cloud)

    syncing = sync(cloud)
    syncing.commit("wide", WIDE)

    location = syncing.folder.removeprefix(f"s3://{BUCKET}/")
    rewritten = pq.read_table(io.BytesIO(cloud.objects()[f"{location}/part-0.parquet"]))
    assert rewritten.to_pylist() == [{"id": 1}]
    assert ("id", "bigint", None) in columns(cloud)
