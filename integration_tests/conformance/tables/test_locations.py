"""Locations of tables: logged for every stream, and rejected outside bucket and prefix."""

from typing import Any

import pytest

from integration_tests.harness.lake import PREFIX
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

SCHEMA = object_schema(id=INTEGER)
ORDERS = configured_stream("orders", SCHEMA)
COMPLETE = status("orders", "COMPLETE")


def order_lines(number: int) -> list[bytes]:
    return [record("orders", {"id": number}), state("orders", number), COMPLETE]


def location(warehouse: Warehouse) -> str:
    location: str = warehouse.lake.glue_table(warehouse.lake.database, "orders")["StorageDescriptor"]["Location"]
    return location


def test_the_log_says_for_every_stream_which_table_it_is_written_to_and_where(warehouse: Warehouse) -> None:
    logs = [warehouse.sync([ORDERS], order_lines(number)).logs for number in (1, 2)]

    kind = "Iceberg" if warehouse.kind.options["table_type"] == "ICEBERG" else "Hive"
    table = f"{kind} table {warehouse.lake.database}.orders at {location(warehouse).rstrip('/')}"
    for log, verb in zip(logs, ("created", "continues"), strict=True):
        [line] = [text for text in log if text.startswith("INFO: Stream orders: ") and " table " in text]
        assert line in (f"INFO: Stream orders: {verb} {table}.", f"INFO: Stream orders: {verb} {table}/.")


@pytest.mark.parametrize("elsewhere", ["another bucket", "another prefix"])
def test_a_table_elsewhere_than_bucket_and_prefix_say_is_refused_before_anything_is_written(
    warehouse: Warehouse, elsewhere: str
) -> None:
    warehouse.sync([ORDERS], order_lines(1))
    original = location(warehouse)
    options: dict[str, Any] = {"bucket_prefix": "other"}
    if elsewhere == "another bucket":
        options = {"bucket_name": f"{warehouse.lake.bucket}-2"}
        warehouse.lake.s3.create_bucket(Bucket=options["bucket_name"])
    before = warehouse.lake.objects()

    run = warehouse.attempt([ORDERS], order_lines(2), **options)

    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert f"its location is {original.rstrip('/')}" in error["message"]
    assert "set follow_table_location to true" in error["message"]
    assert run.states == []
    assert warehouse.lake.objects() == before
    assert warehouse.ids("orders") == [1]


def test_missing_bucket_is_named_before_anything_is_written(warehouse: Warehouse) -> None:
    run = warehouse.attempt([ORDERS], order_lines(1), bucket_name="not-there-x")

    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert "bucket not-there-x" in error["message"]
    assert "the bucket does not exist. Create the bucket, or correct bucket_name and region." in error["message"]
    assert run.states == []


def test_a_table_elsewhere_is_written_to_where_it_lies_if_that_is_wanted(warehouse: Warehouse) -> None:
    warehouse.sync([ORDERS], order_lines(1))
    other_bucket = f"{warehouse.lake.bucket}-3"
    warehouse.lake.s3.create_bucket(Bucket=other_bucket)
    following: dict[str, Any] = {"bucket_name": other_bucket, "follow_table_location": True}

    warehouse.sync([ORDERS], order_lines(2), **following)
    assert warehouse.ids("orders") == [1, 2]
    for generation in (1, 2):
        replaced = configured_stream("orders", SCHEMA, generation=generation, minimum=generation)
        warehouse.sync([replaced], order_lines(2 + generation), **following)

    assert warehouse.ids("orders") == [4]
    assert location(warehouse).startswith(f"s3://{warehouse.lake.bucket}/{PREFIX}/")
    written = warehouse.lake.s3.list_objects_v2(Bucket=other_bucket)["Contents"]
    assert all(written_object["Key"].startswith(f"{PREFIX}/_reports/") for written_object in written)


def test_a_stream_that_would_take_the_table_of_rejects_is_refused_before_anything_is_read(
    warehouse: Warehouse,
) -> None:
    run = warehouse.attempt([configured_stream("airbyte_rejects", SCHEMA)], [record("airbyte_rejects", {"id": 1})])

    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert (
        f"table {warehouse.lake.database}.airbyte_rejects, but this name is reserved for the table of rejects"
        in error["message"]
    )
    assert warehouse.lake.objects() == {}
