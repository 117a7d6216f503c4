"""Inherited tables: how AWS Datalake's are recognised, and the notes and warnings about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.errors import ConnectorError
from destination_datalake.protocol.catalog import StreamId, parse_catalog
from destination_datalake.tables.iceberg.compatibility import no_iceberg_table
from destination_datalake.tables.migration import (
    InheritedTable,
    is_inherited,
    migration_note,
    refuse_second_table,
)
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, ungoverned

PARAMETERS = {"classification": "parquet", "compressionType": "snappy", "typeOfData": "file"}
OURS = {"airbyte.stream-name": "orders", "airbyte.naming": "snake_case"}
CONTINUING: Mapping[str, Any] = {"table_type": "HIVE", "naming": {"style": "aws_datalake"}}


def glue_table(
    name: str,
    location: str,
    parameters: Mapping[str, str] = PARAMETERS,
    columns: tuple[str, ...] = ("id",),
    **more: Any,
) -> dict[str, Any]:
    """A table as Glue returns it."""
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


def note(glue_tables: Sequence[Any], **options: Any) -> str | None:
    return migration_note(glue_tables, config(**options))


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
def test_a_table_is_inherited_if_awswrangler_s_parameters_say_so(parameters: Mapping[str, str], known: bool) -> None:
    assert is_inherited(glue_table("orders", "s3://lake/raw/landing/orders/", parameters)) == known


@pytest.mark.parametrize(
    ("name", "location", "stream"),
    [
        ("orders", "s3://lake/raw/landing/orders/", StreamId(None, "orders")),
        ("orderitems", "s3://lake/raw/landing/orderItems/", StreamId(None, "orderItems")),
        ("orderitems", "s3://lake/raw/Landing/orderItems/", StreamId(None, "orderItems")),
        ("gro_e", "s3://lake/landing/größe/", StreamId(None, "größe")),
        ("orders", "s3://lake/raw//landing/orders", StreamId(None, "orders")),
        # Folders with other names are not AWS Datalake's.
        ("orders", "s3://lake/raw/orders/", None),
        ("orders", "s3://lake/raw/landing/old_orders/", None),
        ("orders", "s3://landing/orders/", None),
        ("airbyte_rejects", "s3://lake/raw/_errors/", None),
        ("orders", "", None),
    ],
)
def test_the_last_two_folders_of_the_location_are_the_stream(name: str, location: str, stream: StreamId | None) -> None:
    table = InheritedTable.from_glue("landing", "landing", glue_table(name, location))

    assert (table and table.stream) == stream


def test_a_stream_of_another_database_has_a_namespace() -> None:
    table = InheritedTable.from_glue("web-shop", "landing", glue_table("orders", "s3://lake/raw/Web-Shop/orders/"))

    assert table is not None
    assert (table.name, table.stream) == (TableName("web-shop", "orders"), StreamId("Web-Shop", "orders"))
    assert table.options(config(**CONTINUING)) == ()
    assert table.options(config(**CONTINUING, database_strategy="single")) == ("database_strategy to namespace",)


def test_a_changed_bucket_prefix_is_among_the_options() -> None:
    table = InheritedTable.from_glue("landing", "landing", glue_table("orders", "s3://lake/old/landing/orders/"))

    assert table is not None
    assert table.options(config(**CONTINUING)) == ("bucket_prefix to its earlier value",)
    assert table.options(config(**CONTINUING, bucket_prefix="old")) == ()
    assert table.options(config(**CONTINUING, follow_table_location=True)) == ()


def test_no_note_without_a_table_to_continue() -> None:
    tables = [
        glue_table("orders", "s3://lake/raw/landing/orders/", {**PARAMETERS, **OURS}),
        glue_table("others", "s3://another-bucket/raw/landing/others/"),
        glue_table("odd", "s3://lake/raw/somewhere/else/"),
    ]

    assert note(tables) is None


def test_no_note_of_a_stream_that_has_a_second_table_already() -> None:
    tables = [
        glue_table("orderitems", "s3://lake/raw/landing/orderItems/"),
        glue_table("order_items", "s3://lake/raw/landing/order_items/data/", {**PARAMETERS, **OURS}),
    ]

    assert note(tables) is None


def test_no_note_of_a_table_whose_columns_other_options_would_name_differently() -> None:
    """Its columns keep their names."""
    tables = [glue_table("orders", "s3://lake/raw/landing/orders/", columns=("id", "orderno"))]

    assert note(tables, table_type="HIVE") is None
    assert "set table_type to HIVE. " in (note(tables) or "")


def test_a_note_of_many_tables_names_ten_and_the_options_once() -> None:
    message = note([glue_table(f"t{number:02}", f"s3://lake/raw/landing/t{number:02}/") for number in range(12)])

    assert message is not None
    assert (
        "table landing.t09 (Parquet) of stream t09, because the options do not match the table; and 2 more." in message
    )
    assert message.count("To continue them, set table_type to HIVE.") == 1


def test_no_second_table_is_begun_if_glue_does_not_say_whether_there_is_a_first_one() -> None:
    nobody_there = AwsAccess("us-east-1", AccessKeys("id", "secret"), "http://127.0.0.1:9", attempts=1)

    with pytest.raises(ConnectorError) as raised:
        refuse_second_table(
            StreamId(None, "orderItems"), TableName("landing", "order_items"), config(), ungoverned(nobody_there)
        )

    assert raised.value.failure.type == "transient_error"


@pytest.mark.parametrize(
    ("stream", "options"), [("orders", {}), ("orderItems", {"table_prefix": "raw_"}), ("order_items", {})]
)
def test_glue_is_asked_only_about_streams_that_aws_datalake_named_differently(
    stream: str, options: Mapping[str, Any]
) -> None:
    nobody_there = AwsAccess("us-east-1", AccessKeys("id", "secret"), "nonsense that would raise")
    options_ = config(**options)

    refuse_second_table(
        StreamId(None, stream),
        TableNaming.from_config(options_).table_of(StreamId(None, stream)),
        options_,
        ungoverned(nobody_there),
    )


CRAWLED = {**PARAMETERS, "compressionType": "none", "UPDATED_BY_CRAWLER": "lake", "objectCount": "3"}
CRAWLER = "arn:aws:sts::123456789012:assumed-role/AWSGlueServiceRole/AWS-Crawler"


@pytest.mark.parametrize(
    ("parameters", "more", "is_inherited_table"),
    [
        pytest.param(PARAMETERS, {}, True, id="AWS Datalake"),
        pytest.param({**PARAMETERS, "classification": "json"}, {}, True, id="AWS Datalake, JSON"),
        pytest.param(CRAWLED, {"CreatedBy": "arn:aws:iam::123456789012:user/airbyte"}, True, id="crawled later"),
        pytest.param(CRAWLED, {"CreatedBy": CRAWLER}, False, id="crawler"),
        pytest.param(CRAWLED, {}, False, id="crawler of a catalog that names no creator"),
        pytest.param({**PARAMETERS, "CreatedByJob": "load", "CreatedByJobRun": "jr_1"}, {}, False, id="Glue job"),
        pytest.param({"EXTERNAL": "TRUE", "parquet.compression": "GZIP"}, {}, False, id="CTAS"),
        pytest.param({"spark.sql.sources.provider": "parquet"}, {}, False, id="Spark"),
        pytest.param(PARAMETERS, {"DatabaseName": "another"}, False, id="awswrangler"),
    ],
)
def test_only_tables_of_aws_datalake_are_called_its_tables(
    parameters: Mapping[str, str], more: Mapping[str, Any], is_inherited_table: bool
) -> None:
    entry = glue_table("orders", "s3://lake/raw/landing/orders/", parameters, **{"DatabaseName": "landing", **more})

    [stream] = parse_catalog({"streams": [{"stream": {"name": "orders", "json_schema": {}}}]})
    message = no_iceberg_table(entry, stream)

    format_type = "JSONL" if parameters.get("classification") == "json" else "Parquet"
    options = f", naming.style to aws_datalake and format_type to {format_type} to continue the table, "
    alternative = " to continue the table, or "
    assert message.startswith(
        f"it is not an Iceberg table. Set table_type to HIVE{options if is_inherited_table else alternative}"
    )


@pytest.mark.parametrize(
    ("keys", "options", "set_these"),
    [
        ({"at_year": "bigint"}, {}, None),
        ({"at_year": "bigint"}, {"partitioning": "YEAR"}, None),
        ({"at_year": "bigint"}, {"partitioning": "DATE"}, "set partitioning to YEAR."),
        ({"at_date": "date"}, {"partitioning": "YEAR/MONTH"}, "set partitioning to DATE."),
        (
            {"at_year": "bigint", "at_month": "bigint"},
            {"path_layout": "plain"},
            "set partitioning to YEAR/MONTH and path_layout to hive.",
        ),
        ({"at_date": "date"}, {"catalog_partitions": "both"}, "set catalog_partitions to register."),
        ({"at_year": "string"}, {}, "Tables with unknown partition keys cannot be continued."),
        ({"at_month": "bigint", "at_year": "bigint"}, {}, "Tables with unknown partition keys"),
        ({"at_year": "bigint", "by_month": "bigint"}, {}, "Tables with unknown partition keys"),
        ({"at_hour": "bigint"}, {}, "Tables with unknown partition keys"),
    ],
)
def test_a_partitioned_table_is_continued_with_its_own_partitioning_or_none(
    keys: Mapping[str, str], options: Mapping[str, Any], set_these: str | None
) -> None:
    table = glue_table("orders", "s3://lake/raw/landing/orders/")
    table["PartitionKeys"] = [{"Name": name, "Type": type_} for name, type_ in keys.items()]

    message = note([table], **CONTINUING, **options)

    assert (message is None) == (set_these is None)
    assert set_these is None or set_these in str(message)
