"""Which partitioned Hive tables are continued, and how; which are refused, and with which remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from destination_datalake.schema.types import Date, Field, Int32, String, Struct, Timestamp
from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.tables.hive.partitions.events import (
    AT,
    FEB,
    ID,
    JAN,
    MAR,
    WIDE,
    create_foreign_table,
    glue_table,
    ids,
    locations,
    partitions,
    register,
    set_parameters,
    sync,
)

pytestmark = pytest.mark.share(11)

AWS_DATALAKE = {"classification": "parquet", "compressionType": "snappy", "typeOfData": "file"}
"""The parameters with which awswrangler created the tables of Airbyte's AWS Datalake destination."""

C = Field("c", "c", Timestamp(zoned=True))
OBJECT, FLAT = Field("alpha", "alpha", Struct((C,))), Field("alpha_c", "c", C.type, ("alpha",))
BY_MONTH: dict[str, Any] = {
    "partitioning": "NO PARTITIONING",
    "streams": [
        {
            "stream": "Events",
            "namespace": "shop",
            "partition_by": [{"source": "alpha.c", "transform": "month", "name": "c_month"}],
        }
    ],
}
"""Before and after `nested` was changed from struct to flatten."""

YEAR_MONTH = (("created_at_year", "bigint"), ("created_at_month", "bigint"))


@pytest.mark.parametrize(
    ("keys", "folder"),
    [
        ((("created_at_date", "date"),), f"created_at_date={JAN}/"),
        ((("created_at_year", "bigint"),), "created_at_year=2023/"),
        (YEAR_MONTH, "created_at_year=2023/created_at_month=1/"),
        ((*YEAR_MONTH, ("created_at_day", "bigint")), "created_at_year=2023/created_at_month=1/created_at_day=31/"),
    ],
)
@pytest.mark.parametrize("options_know", [True, False])
def test_table_that_aws_datalake_partitioned_goes_on_in_its_partitions(
    cloud: Cloud, keys: tuple[tuple[str, str], ...], folder: str, options_know: bool
) -> None:
    create_foreign_table(cloud, keys, Parameters=AWS_DATALAKE)
    units = "/".join(name.removeprefix("created_at_").upper() for name, _ in keys)

    sync(cloud, partitioning=units if options_know else "NO PARTITIONING").commit((1, JAN))

    assert [*locations(cloud).values()] == [folder]
    assert ids(cloud) == [1]
    assert [(key["Name"], key["Type"]) for key in glue_table(cloud)["PartitionKeys"]] == [*keys]


def test_partitions_of_aws_datalake_follow_the_content_when_a_column_becomes_wider(cloud: Cloud) -> None:
    """Those of null cursors too, whose year was 0."""
    create_foreign_table(cloud, YEAR_MONTH, Parameters=AWS_DATALAKE)
    first = sync(cloud, partitioning="NO PARTITIONING")
    first.commit((1, JAN), (2, None))
    register(cloud, ["0", "0"], f"s3://{BUCKET}/shop/events/created_at_year=0/created_at_month=0/")

    first.commit((WIDE, FEB))
    first.publish()
    sync(cloud, partitioning="YEAR/MONTH").publish()

    assert ids(cloud) == [1, 2, WIDE]
    assert locations(cloud)["0/0"] == "created_at_year=0/created_at_month=0/"


@pytest.mark.parametrize(
    "options",
    [
        {"path_layout": "plain"},
        {"path_layout": "segment", "partitioning": "DATE"},
        {"partitioning": "YEAR", "timezone": "Asia/Tokyo"},
        {"partitioning": "DATE", "partition_source": "extracted_at"},
        {"catalog_partitions": "both"},
    ],
)
def test_table_goes_on_as_it_is_recorded_whatever_the_defaults_are(cloud: Cloud, options: dict[str, Any]) -> None:
    sync(cloud, **{"partitioning": "YEAR/MONTH/DAY/HOUR", **options}).commit((1, JAN))
    before = glue_table(cloud)["PartitionKeys"], locations(cloud)

    sync(cloud, partitioning="NO PARTITIONING").commit((2, JAN))

    assert (glue_table(cloud)["PartitionKeys"], locations(cloud)) == before
    assert ids(cloud) == [1, 2]


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        ({}, {"partitioning": "YEAR"}, "it is partitioned by (created_at_date date) in folders created_at_date="),
        (
            {},
            {"partitioning": "YEAR/MONTH"},
            "but the options configure (created_at_year bigint, created_at_month bigint)",
        ),
        ({}, {"timezone": "Europe/Berlin"}, "created_at_date is date(created_at, Europe/Berlin)"),
        ({**BY_MONTH, "columns": [ID, OBJECT]}, {**BY_MONTH, "columns": [ID, FLAT]}, "c_month is month(alpha_c, UTC)"),
        ({}, {"partition_source": "extracted_at"}, "(extracted_at_date date)"),
        ({}, {"path_layout": "segment"}, "partitioning to NO PARTITIONING to keep the table's partitions"),
        (
            {},
            {"catalog_partitions": "projection"},
            "Restore partitioning, partition_source, partition_by, nested, path_layout",
        ),
        (
            {"partitioning": "NO PARTITIONING"},
            {},
            "it is not partitioned, but the options configure the partition keys",
        ),
    ],
)
def test_table_that_is_partitioned_otherwise_is_refused_unchanged(
    cloud: Cloud, made: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    sync(cloud, **made)
    before = glue_table(cloud)

    with pytest.raises(TableConflict) as refused:
        sync(cloud, **options)

    assert str(refused.value).startswith("Cannot write stream shop.Events to table shop.events: ")
    assert message in str(refused.value)
    present, _, configured = (
        str(refused.value).partition(". The partition keys")[0].partition(", but the options configure ")
    )
    assert not present.endswith(configured)
    assert str(refused.value).endswith("or set another table_prefix, or choose another lakeformation_database_name.")
    assert glue_table(cloud) == before


@pytest.mark.parametrize(
    ("keys", "parameters", "message"),
    [
        ((("region", "string"),), {}, "it is partitioned by (region string), but the options do not define these keys"),
        (YEAR_MONTH, {}, "but the options do not define these keys. Set partitioning"),
        ((("created_at_year", "string"),), AWS_DATALAKE, "it is partitioned by (created_at_year string)"),
        ((("updated_at_year", "bigint"),), AWS_DATALAKE, "it is partitioned by (updated_at_year bigint)"),
        ((("id_date", "date"),), AWS_DATALAKE, "it is partitioned by (id_date date)"),
        ((*YEAR_MONTH[::-1],), AWS_DATALAKE, "(created_at_month bigint, created_at_year bigint)"),
        (YEAR_MONTH, {**AWS_DATALAKE, "projection.enabled": "TRUE"}, "its parameter projection.enabled is true"),
    ],
)
def test_table_whose_keys_say_nothing_is_refused_unchanged_if_the_options_do_not_say_it_either(
    cloud: Cloud, keys: tuple[tuple[str, str], ...], parameters: dict[str, str], message: str
) -> None:
    create_foreign_table(cloud, keys, Parameters=parameters)
    foreign_columns = [{"Name": "theirs", "Type": "map<string,int>", "Comment": "Not ours."}]
    register(cloud, ["2024"] * len(keys), f"s3://{BUCKET}/shop/events/2024/", Columns=foreign_columns)
    before = glue_table(cloud), partitions(cloud)

    with pytest.raises(TableConflict) as refused:
        sync(cloud, partitioning="NO PARTITIONING")

    assert message in str(refused.value)
    assert (glue_table(cloud), partitions(cloud)) == before


def test_table_of_another_writer_goes_on_if_its_keys_are_those_of_the_options(cloud: Cloud) -> None:
    create_foreign_table(cloud, (("created_at_date", "date"),))

    sync(cloud).commit((1, JAN))

    assert locations(cloud) == {JAN: f"created_at_date={JAN}/"}
    assert glue_table(cloud)["Parameters"]["cost-centre"] == "7"


@pytest.mark.parametrize("later", [True, False])
def test_no_column_has_the_name_of_a_partition_key(cloud: Cloud, later: bool) -> None:
    named_like_key = Field("created_at_date", "created_at_date", String())
    if later:
        sync(cloud).commit((1, JAN))

    columns = (ID, AT, named_like_key)
    sync(cloud, columns=columns).commit((2, FEB))
    sync(cloud, columns=columns).commit((3, MAR))

    table = glue_table(cloud)
    keys = {key["Name"] for key in table["PartitionKeys"]}
    names = [column["Name"] for column in table["StorageDescriptor"]["Columns"]]
    assert keys.isdisjoint(names)
    assert len(names) == len(set(names)) == 7
    assert ids(cloud) == ([1, 2, 3] if later else [2, 3])


@pytest.mark.parametrize("type_", [Int32(), String(), None])
def test_rows_whose_column_is_a_date_no_more_lie_in_the_null_partition(cloud: Cloud, type_: Any) -> None:
    """The stream has changed, and the options leave the matter to the table."""
    sync(cloud).commit((1, JAN))
    columns = (ID,) if type_ is None else (ID, Field("created_at", "created_at", type_))

    sync(cloud, columns=columns, partitioning="NO PARTITIONING").commit((2, None))

    assert ids(cloud) == [1, 2]
    assert {*locations(cloud)} == {JAN, "__HIVE_DEFAULT_PARTITION__"}


def test_date_columns_of_both_kinds_are_sources(cloud: Cloud) -> None:
    sync(cloud, columns=(ID, Field("created_at", "created_at", Date())))
    assert [key["Name"] for key in glue_table(cloud)["PartitionKeys"]] == ["created_at_date"]
    cloud.access.client("glue").delete_table(DatabaseName="shop", Name="events")
    sync(cloud, columns=(ID, Field("created_at", "created_at", Timestamp(zoned=False))))
    assert [key["Name"] for key in glue_table(cloud)["PartitionKeys"]] == ["created_at_date"]
    assert partitions(cloud) == {}


KEY = {"name": "created_at_date", "type": "date", "source": ["created_at"], "null": "-", "projected": False}
SCHEME = {"layout": "hive", "catalog": "register", "folders": "created_at_date={created_at_date}", "max_bytes": 700}
BY_DATE = {"part": "date", "zone": "UTC", "digits": 0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("airbyte.partition-index", "{"),
        ("airbyte.partition-index", '{"behind": {"id": "1", "left": "s3://lake/a", "replaced": false}}'),
        ("airbyte.partitioning", "[]"),
        ("airbyte.partitioning", json.dumps(SCHEME)),
        ("airbyte.partitioning", json.dumps({**SCHEME, "keys": [KEY]})),
        ("airbyte.partitioning", json.dumps({**SCHEME, "keys": [{**KEY, "transform": "weekly"}]})),
        ("airbyte.partitioning", json.dumps({**SCHEME, "keys": [{**KEY, **BY_DATE, "zone": "Mars"}]})),
        ("airbyte.partitioning", json.dumps({**SCHEME, "keys": [{**KEY, **BY_DATE}], "folders": "{other}"})),
        ("airbyte.partitioning", json.dumps({**SCHEME, "keys": [{**KEY, **BY_DATE}], "catalog": "nowhere"})),
    ],
)
def test_table_with_an_invalid_property_is_refused(cloud: Cloud, name: str, value: str) -> None:
    sync(cloud).commit((1, JAN))
    set_parameters(cloud, **{name: value})

    with pytest.raises(TableConflict, match=f"Cannot read property {name} of table events at .* remove the property"):
        sync(cloud)

    assert ids(cloud) == [1]
