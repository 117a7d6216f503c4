"""Coming from AWS Datalake with other options than go on with its tables: what check, log and errors say."""

from typing import Any

import pytest

from integration_tests.conformance.migration.aws_datalake import AwsDatalake, Format
from integration_tests.conformance.migration.migrating import OPTIONS, on, sync
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema

DATE_TIME: Json = {"type": "string", "format": "date-time"}


@on("iceberg")
def test_a_sync_that_begins_a_second_table_says_so_and_how_to_go_on_with_the_first(
    lake: Lake, platform: Platform
) -> None:
    """A warning names both tables and the options, once."""
    AwsDatalake(lake).append("orderItems", {"id": "bigint"}, [{"id": 1}])
    schema = object_schema(id=INTEGER)

    runs = [sync(platform, lake.config(), schema, {"id": id}, stream="orderItems") for id in (2, 3)]

    assert [run.exit_code for run in runs] == [0, 0]
    assert lake.tables() == [(lake.database, "order_items"), (lake.database, "orderitems")]
    [warning] = [text for text in runs[0].logs if "AWS Datalake" in text]
    assert (
        f"Stream orderItems begins a new table {lake.database}.order_items. Table {lake.database}.orderitems, which "
        "Airbyte's AWS Datalake destination created for it, stays as it is and gets no more records. To continue that "
        "one, set table_type HIVE and naming.style aws_datalake" in warning
    )
    assert not [text for text in runs[1].logs if "AWS Datalake" in text], "it has been begun"


@on("iceberg")
def test_a_table_that_is_no_iceberg_table_is_refused_with_the_options_that_work(lake: Lake, platform: Platform) -> None:
    """The table stays as it is."""
    AwsDatalake(lake).append("orders", {"id": "bigint"}, [{"id": 1}])

    run = sync(platform, lake.config(), object_schema(id=INTEGER), {"id": 2})

    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert (
        "it exists and is not an Iceberg table. Set table_type to HIVE, naming.style to aws_datalake and format_type "
        "to Parquet to continue it" in error["message"]
    )
    assert [row["id"] for row in lake.rows(lake.database, "orders")] == [1]


@on("hive-parquet")
def test_columns_that_other_names_would_begin_are_named(lake: Lake, platform: Platform) -> None:
    """A warning names them beside those that are there, and the option that goes on with them."""
    AwsDatalake(lake).append("orders", {"id": "bigint", "orderNo": "string"}, [{"id": 1, "orderNo": "a"}])
    config = lake.config(**{**OPTIONS, "naming": {"style": "snake_case"}})

    run = sync(platform, config, object_schema(id=INTEGER, orderNo=STRING), {"id": 2, "orderNo": "b"})

    assert run.exit_code == 0, run.report()
    assert any(
        "created: order_no beside orderno. To continue the old ones, set naming.style" in text for text in run.logs
    )


@on("hive-parquet")
def test_a_table_with_partition_keys_that_say_nothing_is_refused_and_stays_as_it_is(
    lake: Lake, platform: Platform
) -> None:
    """A config_error, before anything is written."""
    types = {"id": "bigint", "at": "timestamp", "region": "string"}
    row = {"id": 1, "at": "2024-02-29T12:00:00", "region": "eu"}
    AwsDatalake(lake).append("orders", types, [row], partitions=["region"])
    before = lake.objects()

    run = sync(platform, lake.config(**OPTIONS), object_schema(id=INTEGER, at=DATE_TIME), {"id": 2})

    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert "it is partitioned by (region string), and the options do not say" in error["message"]
    assert lake.objects() == before


@on("hive-parquet")
def test_a_table_that_was_partitioned_by_two_cursors_is_refused_and_stays_as_it_is(
    lake: Lake, platform: Platform
) -> None:
    """The message has the table's keys and those that the options mean."""
    types = {"id": "bigint", "at": "timestamp", "due": "timestamp", "at_year": "bigint", "due_year": "bigint"}
    row = {"id": 1, "at": "2024-02-29T12:00:00", "due": "2025-01-01T00:00:00", "at_year": 2024, "due_year": 2025}
    AwsDatalake(lake).append("orders", types, [row], partitions=["at_year", "due_year"])
    before = lake.objects()
    schema = object_schema(id=INTEGER, at=DATE_TIME, due=DATE_TIME)

    run = sync(platform, lake.config(**OPTIONS, partitioning="YEAR"), schema, {"id": 2}, cursor="at")

    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert "(at_year bigint, due_year bigint)" in error["message"]
    assert lake.objects() == before


@pytest.mark.parametrize(
    ("format_", "options", "set_these"),
    [
        ("Parquet", {}, "table_type HIVE and naming.style aws_datalake"),
        ("Parquet", {"table_type": "HIVE"}, "naming.style aws_datalake"),
        ("Parquet", {**OPTIONS, "table_prefix": "raw_"}, "table_prefix empty"),
        ("JSONL", OPTIONS, "format.format_type JSONL"),
    ],
)
def test_check_says_which_options_go_on_with_the_tables_that_are_there(
    lake: Lake, platform: Platform, format_: Format, options: dict[str, Any], set_these: str
) -> None:
    """In the message of a check that succeeds: the table, its stream, and what to set."""
    AwsDatalake(lake, format_, None).append("orderItems", {"id": "bigint"}, [{"id": 1}])

    answer = platform.check(lake.config(**options)).connection_status

    assert answer["status"] == "SUCCEEDED"
    assert f"table {lake.database}.orderitems ({format_}), whose stream orderItems" in answer["message"]
    assert f"To continue them, set {set_these}. " in answer["message"]


def test_check_says_nothing_where_the_options_go_on(lake: Lake, platform: Platform) -> None:
    """A check that finds all well has nothing to say."""
    AwsDatalake(lake).append("orderItems", {"id": "bigint"}, [{"id": 1}])

    assert platform.check(lake.config(**OPTIONS)).connection_status == {"status": "SUCCEEDED"}


def test_check_says_that_a_table_with_other_partition_keys_cannot_be_continued(lake: Lake, platform: Platform) -> None:
    """It is named, and no option is promised to help."""
    row = {"id": 1, "region": "eu"}
    AwsDatalake(lake).append("orders", {"id": "bigint", "region": "string"}, [row], partitions=["region"])

    message = platform.check(lake.config(**OPTIONS)).connection_status["message"]

    assert f"partitioned table {lake.database}.orders (Parquet)" in message
    assert "Tables with other partition keys than that connector's cannot be continued." in message
