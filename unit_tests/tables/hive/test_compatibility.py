"""Which existing Hive tables are written to, and which are refused unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.files.plan import FileFormat
from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.tables.hive.orders import (
    JSON,
    PARQUET,
    ROOT,
    create_foreign_table,
    descriptor,
    glue_table,
    ids,
    sync,
    update_glue_table,
)

HIVE = "org.apache.hadoop.hive.ql.io"
BUCKETED = {"BucketColumns": ["id"], "NumberOfBuckets": 4}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"Parameters": {"table_type": "iceberg"}}, "it is an Iceberg table, but table_type is HIVE"),
        ({"Parameters": {"table_type": "DELTA"}}, "its parameter table_type is DELTA"),
        ({"Parameters": {"table_type": "HUDI"}}, "its parameter table_type is HUDI"),
        ({"Parameters": {"spark.sql.sources.provider": "hudi"}}, "its parameter spark.sql.sources.provider is hudi"),
        ({"Parameters": {"spark.sql.sources.provider": "parquet"}}, "spark.sql.sources.provider is parquet"),
        ({"Parameters": {"transactional": "true"}}, "its parameter transactional is true"),
        ({"Parameters": {"parquet.column.index.access": "true"}}, "its property parquet.column.index.access is true"),
        ({"TableType": "VIRTUAL_VIEW"}, "it is a view (TableType VIRTUAL_VIEW)"),
        ({"TableType": "GOVERNED"}, "it is a governed table"),
        (
            {"TargetTable": {"CatalogId": "1", "DatabaseName": "a", "Name": "b"}},
            "a resource link (TargetTable) to table a.b",
        ),
        ({"PartitionKeys": [{"Name": "day", "Type": "date"}]}, "it is partitioned"),
        (descriptor(SerdeInfo={"SerializationLibrary": JSON}), f"its SerDe ({JSON}) cannot read parquet files"),
        ({"StorageDescriptor": {}}, "its SerDe (not set) cannot read parquet"),
        (
            descriptor(InputFormat=f"{HIVE}.SymlinkTextInputFormat"),
            f"its InputFormat ({HIVE}.SymlinkTextInputFormat",
        ),
        (
            descriptor(InputFormat="org.apache.hudi.hadoop.HoodieParquetInputFormat"),
            "its InputFormat (org.apache.hudi",
        ),
        (descriptor(**BUCKETED), "it is bucketed by id (BucketColumns)"),
        (descriptor(StoredAsSubDirectories=True), "(StoredAsSubDirectories)"),
        (descriptor(Location=""), "it has no location"),
        (descriptor(Location="hdfs://cluster/orders"), "its location hdfs://cluster/orders is not in S3"),
        (descriptor(Location=f"s3://{BUCKET}"), f"its location s3://{BUCKET} is a whole bucket"),
        (descriptor(Location=f"s3://{BUCKET}/"), "is a whole bucket"),
        (descriptor(Location=f"s3://{BUCKET}/a//b"), "contains an empty folder name"),
        (descriptor(Location=f"s3://{BUCKET}/a//"), "contains an empty folder name"),
        (descriptor(Location=f"s3://{BUCKET}/a/../b"), "or the folder name . or .."),
        (
            descriptor(Columns=[{"Name": "_airbyte_meta", "Type": "string"}]),
            "the type of its column _airbyte_meta differs",
        ),
        (
            descriptor(
                SerdeInfo={"SerializationLibrary": PARQUET, "Parameters": {"Parquet.Column.Index.Access": "TRUE"}}
            ),
            "its property parquet.column.index.access is TRUE",
        ),
    ],
)
def test_incompatible_table_is_refused_and_left_unchanged(cloud: Cloud, changes: dict[str, Any], reason: str) -> None:
    create_foreign_table(cloud, **({"StorageDescriptor": changes} if "SerdeInfo" in changes else changes))
    before = glue_table(cloud)

    with pytest.raises(TableConflict) as refused:
        sync(cloud)

    assert str(refused.value).startswith("Cannot write stream shop.Orders to table shop.orders: ")
    assert reason in str(refused.value)
    assert glue_table(cloud) == before


@pytest.mark.parametrize(
    ("parameters", "serde", "property"),
    [
        ({"skip.header.line.count": "1"}, {}, "skip.header.line.count"),
        ({}, {"mapping.id": "ID"}, "mapping.id"),
        ({}, {"timestamp.formats": "dd/MM/yyyy"}, "timestamp.formats"),
    ],
)
def test_table_whose_properties_would_misread_json_lines_is_refused(
    cloud: Cloud, parameters: dict[str, str], serde: dict[str, str], property: str
) -> None:
    reading = {"SerializationLibrary": JSON, "Parameters": serde}
    create_foreign_table(cloud, Parameters=parameters, StorageDescriptor=descriptor(SerdeInfo=reading))

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
def test_tables_as_other_tools_create_them_are_written_to(
    cloud: Cloud, format: FileFormat, parameters: dict[str, str], storage: dict[str, Any]
) -> None:
    create_foreign_table(cloud, Parameters=parameters, StorageDescriptor=descriptor(**storage))

    sync(cloud, format=format).commit("one", 1)

    assert ids(cloud) == [1]


PENDING = {"airbyte.unpublished-location": f"{ROOT}/generation-2-0123456789ab"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("airbyte.lowest-generation-id", "x"),
        ("airbyte.lowest-generation-id", "-1"),
        pytest.param("airbyte.lowest-generation-id", "9" * 5_000, id="a number of 5,000 digits"),
        ("airbyte.unpublished-location", "no uri"),
        ("airbyte.unpublished-generation-id", "x"),
        ("airbyte.unpublished-types", "{"),
        ("airbyte.unpublished-types", '["id"]'),
        ("airbyte.unpublished-types", '{"id": 1}'),
        ("airbyte.other-locations", ""),
        ("airbyte.other-locations", "7"),
        pytest.param("airbyte.other-locations", '{"a":' * 100_000, id="deep JSON"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_table_with_an_invalid_property_is_refused_unchanged(
    cloud: Cloud, name: str, value: str, overwrite: bool
) -> None:
    sync(cloud, generation=1).publish()
    pending = PENDING if name.startswith("airbyte.unpublished") else {}
    update_glue_table(cloud, Parameters={**glue_table(cloud)["Parameters"], **pending, name: value})
    before = glue_table(cloud)

    with pytest.raises(TableConflict) as caught:
        sync(cloud, generation=2, overwrite=overwrite)

    assert str(caught.value).startswith(f"Cannot read property {name} of table orders at {ROOT}/generation-1-")
    assert str(caught.value).endswith("Restore the former value. If it is unknown, remove the property.")
    assert glue_table(cloud) == before
