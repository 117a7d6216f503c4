"""Which tables are known as AWS Datalake's, and what is said of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.aws_datalake import (
    InheritedTable,
    advice,
    how_to_continue,
    is_inherited,
    warn_of_second_table,
)
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account

PARAMETERS = {"classification": "parquet", "compressionType": "snappy", "typeOfData": "file"}
OURS = {"airbyte.stream-name": "orders", "airbyte.naming": "snake_case"}
CONTINUING: Mapping[str, Any] = {"table_type": "HIVE", "naming": {"style": "aws_datalake"}}


def entry(
    name: str,
    location: str,
    parameters: Mapping[str, str] = PARAMETERS,
    columns: tuple[str, ...] = ("id",),
    **more: Any,
) -> dict[str, Any]:
    """What Glue has of a table."""
    described = [{"Name": column, "Type": "bigint"} for column in columns]
    return {
        "Name": name,
        "Parameters": {**parameters},
        "StorageDescriptor": {"Location": location, "Columns": described},
        **more,
    }


def config(**options: Any) -> Config:
    return Config.parse(
        {
            "credentials": {"credentials_title": "Default chain"},
            "region": "us-east-1",
            "bucket_name": BUCKET,
            "bucket_prefix": "raw",
            "lakeformation_database_name": "landing",
            **options,
        }
    )


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def there(cloud: Cloud, *entries: dict[str, Any], database: str = "landing") -> None:
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": database})
    for each in entries:
        glue.create_table(DatabaseName=database, TableInput=each)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "known"),
    [
        (PARAMETERS, True),
        ({**PARAMETERS, "classification": "json", "projection.enabled": "false"}, True),
        ({**PARAMETERS, **OURS}, False),
        ({**PARAMETERS, "table_type": "ICEBERG"}, False),
        ({**PARAMETERS, "classification": "csv"}, False),
        ({"classification": "parquet"}, False),
        ({}, False),
    ],
)
def test_a_table_is_known_by_what_awswrangler_notes(parameters: Mapping[str, str], known: bool) -> None:
    assert is_inherited(entry("orders", "s3://lake/raw/landing/orders/", parameters)) == known


@pytest.mark.parametrize(
    ("name", "location", "stream"),
    [
        ("orders", "s3://lake/raw/landing/orders/", StreamId(None, "orders")),
        ("orderitems", "s3://lake/raw/landing/orderItems/", StreamId(None, "orderItems")),
        ("orderitems", "s3://lake/raw/Landing/orderItems/", StreamId(None, "orderItems")),
        ("gro_e", "s3://lake/landing/größe/", StreamId(None, "größe")),
        ("orders", "s3://lake/raw//landing/orders", StreamId(None, "orders")),
        # Folders that are not named so are somebody else's.
        ("orders", "s3://lake/raw/orders/", None),
        ("orders", "s3://lake/raw/landing/old_orders/", None),
        ("orders", "s3://landing/orders/", None),
        ("airbyte_rejects", "s3://lake/raw/_errors/", None),
        ("orders", "", None),
    ],
)
def test_the_folders_of_a_table_say_whose_it_is(name: str, location: str, stream: StreamId | None) -> None:
    table = InheritedTable.of("landing", "landing", entry(name, location))

    assert (table and table.stream) == stream


def test_a_namespace_is_told_from_the_default_database() -> None:
    table = InheritedTable.of("web-shop", "landing", entry("orders", "s3://lake/raw/Web-Shop/orders/"))

    assert table is not None
    assert (table.name, table.stream) == (TableName("web-shop", "orders"), StreamId("Web-Shop", "orders"))
    assert table.options(config(**CONTINUING)) == ()
    assert table.options(config(**CONTINUING, database_strategy="single")) == ("database_strategy namespace",)


def test_another_prefix_than_before_is_among_the_options() -> None:
    table = InheritedTable.of("landing", "landing", entry("orders", "s3://lake/old/landing/orders/"))

    assert table is not None
    assert table.options(config(**CONTINUING)) == ("bucket_prefix as it was",)
    assert table.options(config(**CONTINUING, bucket_prefix="old")) == ()
    assert table.options(config(**CONTINUING, follow_table_location=True)) == ()


def test_nothing_is_said_where_there_is_nothing_to_go_on_with(cloud: Cloud) -> None:
    there(
        cloud,
        entry("orders", "s3://lake/raw/landing/orders/", {**PARAMETERS, **OURS}),
        entry("others", "s3://another-bucket/raw/landing/others/"),
        entry("odd", "s3://lake/raw/somewhere/else/"),
    )

    assert advice(cloud.access.client("glue"), config()) is None


def test_a_stream_that_has_its_second_table_already_is_left_alone(cloud: Cloud) -> None:
    there(
        cloud,
        entry("orderitems", "s3://lake/raw/landing/orderItems/"),
        entry("order_items", "s3://lake/raw/landing/order_items/data/", {**PARAMETERS, **OURS}),
    )

    assert advice(cloud.access.client("glue"), config()) is None


def test_a_table_that_a_sync_writes_to_by_other_names_is_left_alone(cloud: Cloud) -> None:
    columns = ("id", "orderno", "_airbyte_raw_id", "order_no")
    there(cloud, entry("orders", "s3://lake/raw/landing/orders/", columns=columns))
    glue = cloud.access.client("glue")

    assert advice(glue, config(table_type="HIVE")) is None
    assert "set table_type HIVE and naming.style" in (advice(glue, config()) or "")


def test_of_many_tables_the_first_are_named_and_the_options_once(cloud: Cloud) -> None:
    tables = [entry(f"t{number:02}", f"s3://lake/raw/landing/t{number:02}/") for number in range(12)]
    there(cloud, *tables)

    said = advice(cloud.access.client("glue"), config())

    assert said is not None
    assert "table landing.t09 (Parquet), whose stream t09 cannot be added to as it is; and 2 more like these." in said
    assert said.count("To go on with them set table_type HIVE and naming.style aws_datalake.") == 1


def test_what_glue_does_not_say_stops_no_sync(caplog: pytest.LogCaptureFixture) -> None:
    nobody_there = AwsAccess("us-east-1", AccessKeys("id", "secret"), "http://127.0.0.1:9", attempts=1)

    with caplog.at_level(logging.INFO):
        warn_of_second_table(StreamId(None, "orderItems"), TableName("landing", "order_items"), config(), nobody_there)

    [said] = caplog.records
    assert said.levelno == logging.INFO
    assert "Only a warning would have come of it." in said.getMessage()


def test_only_a_stream_that_aws_datalake_called_otherwise_is_asked_about() -> None:
    nobody_there = AwsAccess("us-east-1", AccessKeys("id", "secret"), "nonsense that would raise")

    warn_of_second_table(StreamId(None, "orders"), TableName("landing", "orders"), config(), nobody_there)


def test_how_to_go_on_is_said_of_aws_datalake_s_tables_alone() -> None:
    location = "s3://lake/raw/landing/orders/"

    assert how_to_continue(entry("orders", location, {"classification": "parquet"})) is None
    said = how_to_continue(entry("orders", location, {**PARAMETERS, "classification": "json"}))
    assert said is not None
    assert said.startswith("table_type to HIVE, naming.style to aws_datalake and format_type to JSONL to go on with it")
