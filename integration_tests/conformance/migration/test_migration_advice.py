"""Coming from AWS Datalake with other options than go on with its tables: what check, log and errors say."""

from typing import Any

import pytest

from integration_tests.conformance.migration.aws_datalake import AwsDatalake, Format
from integration_tests.conformance.migration.migrating import OPTIONS, on, sync
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, META, STRING, object_schema

pytestmark = pytest.mark.share(2)

DATE_TIME: Json = {"type": "string", "format": "date-time"}


UNCHANGED: list[tuple[Format, Json]] = [
    ("Parquet", {"format": {"format_type": "Parquet", "compression_codec": "SNAPPY"}}),
    ("JSONL", {"format": {"format_type": "JSONL", "compression_codec": "UNCOMPRESSED"}}),
]
"""Configurations of that connector as they were."""


@pytest.mark.share(1)
@on("iceberg")
@pytest.mark.parametrize("prefix", ["", "raw_"])
def test_a_sync_begins_no_second_table_beside_the_first_unless_a_prefix_asks_for_it(
    lake: Lake, platform: Platform, prefix: str
) -> None:
    """An error names both tables and the options that go on with the first, and those that begin another."""
    AwsDatalake(lake).append("orderItems", {"id": "bigint"}, [{"id": 1}])
    config = lake.config(table_type="ICEBERG", table_prefix=prefix)

    run = sync(platform, config, object_schema(id=INTEGER), {"id": 2}, stream="orderItems")

    if prefix:
        assert run.exit_code == 0, run.report()
        assert lake.tables() == [(lake.database, "orderitems"), (lake.database, "raw_order_items")]
        return
    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert (
        f"Cannot write stream orderItems to table {lake.database}.order_items: Airbyte's AWS Datalake "
        f"destination created table {lake.database}.orderitems for the stream, so a new table would contain only new "
        f"records. To continue table {lake.database}.orderitems, set table_type to HIVE and naming.style to "
        "aws_datalake"
    ) in error["message"]
    assert lake.tables() == [(lake.database, "orderitems")]


@pytest.mark.slow
@on("iceberg")
def test_a_stream_that_has_a_second_table_already_goes_on_in_it(lake: Lake, platform: Platform) -> None:
    schema = object_schema(id=INTEGER)
    sync(platform, lake.config(), schema, {"id": 1}, stream="orderItems")
    AwsDatalake(lake).append("orderItems", {"id": "bigint"}, [{"id": 1}])

    run = sync(platform, lake.config(), schema, {"id": 2}, stream="orderItems")

    assert run.exit_code == 0, run.report()
    assert sorted(row["id"] for row in lake.rows(lake.database, "order_items")) == [1, 2]


@pytest.mark.slow
@pytest.mark.share(1)
@on("hive-jsonl")
@pytest.mark.parametrize(("format_", "options"), UNCHANGED)
def test_an_unchanged_configuration_moves_no_part_of_a_connection(
    lake: Lake, platform: Platform, format_: Format, options: Json
) -> None:
    """One stream's table cannot go on with it: check fails, and a sync is refused before any stream is written to."""
    old = AwsDatalake(lake, format_, None)
    old.append("users", {"id": "bigint"}, [{"id": 1}])
    old.append("orderItems", {"id": "bigint"}, [{"id": 1}])
    before, config, schema = lake.objects(), lake.config(**options), object_schema(id=INTEGER)
    names = ("new", "users", "orderItems")
    catalog = configured_catalog(*(configured_stream(name, schema) for name in names))
    lines = [line for name in names for line in (record(name, {"id": 2}), status(name, "COMPLETE"))]

    answer = platform.check(config).connection_status
    run = platform.write(config, catalog, lines)

    assert answer["status"] == "FAILED"
    continued = "naming.style to aws_datalake"
    if format_ != "JSONL":
        continued = f"table_type to HIVE and {continued}"
    assert f"To continue them, set {continued}. " in answer["message"]
    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert (
        f"table {lake.database}.orderitems ({format_}) of stream orderItems, because the stream would be "
        "written to" in error["message"]
    )
    assert f"To continue them, set {continued}. " in error["message"]
    assert run.states == []
    assert lake.objects() == before
    assert lake.tables() == [(lake.database, "orderitems"), (lake.database, "users")]


@pytest.mark.slow
@on("hive-jsonl")
def test_an_unchanged_configuration_goes_on_with_the_columns_that_are_there(lake: Lake, platform: Platform) -> None:
    """Those of JSON Lines, whatever the names of fields are, at any depth."""
    types = {"id": "bigint", "isActive": "boolean", "soldTo": "struct<zipCode:string>"}
    row = {"id": 1, "isActive": True, "soldTo": {"zipCode": "a"}}
    AwsDatalake(lake, "JSONL", None).append("users", types, [row])
    schema = object_schema(
        id=INTEGER, isActive={"type": "boolean"}, soldTo=object_schema(zipCode=STRING), newField=STRING
    )
    config = lake.config(format={"format_type": "JSONL", "compression_codec": "UNCOMPRESSED"})
    rows = [{**row, "id": id_, "newField": "b"} for id_ in (2, 3)]

    answer = platform.check(config).connection_status
    runs = [sync(platform, config, schema, row, stream="users") for row in rows]

    assert answer == {"status": "SUCCEEDED"}
    assert [run.exit_code for run in runs] == [0, 0], runs[0].report()
    assert [*lake.columns(lake.database, "users")] == ["id", "isactive", "soldto", *META, "newfield"]
    got = sorted(lake.rows(lake.database, "users"), key=lambda row: row["id"])
    assert [(row["id"], row["isactive"]) for row in got] == [(id_, True) for id_ in (1, 2, 3)]
    assert lake.columns(lake.database, "users")["soldto"].lower() == "struct<zipcode:string>"


@on("iceberg")
def test_a_table_that_is_no_iceberg_table_is_refused_with_the_options_that_work(lake: Lake, platform: Platform) -> None:
    """The table stays as it is."""
    AwsDatalake(lake).append("orders", {"id": "bigint"}, [{"id": 1}])

    run = sync(platform, lake.config(table_type="ICEBERG"), object_schema(id=INTEGER), {"id": 2})

    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert (
        "it is not an Iceberg table. Set table_type to HIVE, naming.style to aws_datalake and format_type to Parquet "
        "to continue the table" in error["message"]
    )
    assert [row["id"] for row in lake.rows(lake.database, "orders")] == [1]


@pytest.mark.slow
@on("hive-parquet")
def test_a_field_keeps_the_second_column_that_an_earlier_sync_has_begun(lake: Lake, platform: Platform) -> None:
    """Its rows since then are there; other fields go on in the first ones."""
    old = {"id": "bigint", "orderNo": "string", "soldTo": "string"}
    AwsDatalake(lake).append("orders", old, [{"id": 1, "orderNo": "a", "soldTo": "b"}])
    entry: Any = lake.glue_table(lake.database, "orders")
    entry["StorageDescriptor"]["Columns"].append({"Name": "order_no", "Type": "string", "Comment": "orderNo"})
    kept: Any = {name: entry[name] for name in ("Name", "Parameters", "StorageDescriptor")}
    lake.glue.update_table(DatabaseName=lake.database, TableInput=kept)
    config = lake.config(**{**OPTIONS, "naming": {"style": "snake_case"}})
    schema = object_schema(id=INTEGER, orderNo=STRING, soldTo=STRING)

    run = sync(platform, config, schema, {"id": 2, "orderNo": "c", "soldTo": "d"})

    assert run.exit_code == 0, run.report()
    [_, row] = sorted(lake.rows(lake.database, "orders"), key=lambda row: row["id"])
    assert (row["orderno"], row["order_no"], row["soldto"]) == (None, "c", "d")


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
    assert "it is partitioned by (region string), but the options do not define these keys" in error["message"]
    assert lake.objects() == before


@pytest.mark.slow
@on("hive-parquet")
def test_a_table_that_was_partitioned_by_two_cursors_is_refused_and_stays_as_it_is(
    lake: Lake, platform: Platform
) -> None:
    """The message has the table's keys and those of the options."""
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


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("format_", "options", "set_these"),
    [
        ("Parquet", {}, "table_type to HIVE and naming.style to aws_datalake"),
        ("Parquet", {"table_type": "HIVE"}, "naming.style to aws_datalake"),
        ("Parquet", {**OPTIONS, "table_prefix": "raw_"}, "table_prefix to an empty text"),
        ("JSONL", OPTIONS, "format.format_type to JSONL"),
    ],
)
def test_check_says_which_options_go_on_with_the_tables_that_are_there(
    lake: Lake, platform: Platform, format_: Format, options: dict[str, Any], set_these: str
) -> None:
    """In the message of a check, which fails if none of the options choose tables: table, stream, and what to set."""
    AwsDatalake(lake, format_, None).append("orderItems", {"id": "bigint"}, [{"id": 1}])

    answer = platform.check(lake.config(**options)).connection_status

    assert answer["status"] == ("SUCCEEDED" if options else "FAILED")
    assert f"table {lake.database}.orderitems ({format_}) of stream orderItems" in answer["message"]
    assert f"To continue them, set {set_these}. " in answer["message"]


@pytest.mark.slow
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
    assert "Tables with unknown partition keys cannot be continued." in message
