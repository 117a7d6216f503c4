"""`check` and existing tables: its log, its notes, and the tables that fail it."""

from typing import Any

from destination_datalake.tables.glue.database import ensure_database
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.runs.platform import Platform


def made_for(lake: Lake, stream: str, location: str, namespace: str | None = None) -> None:
    """A table as a sync of the stream makes it, at a location of the test's choice."""
    database = namespace or lake.database
    ensure_database(lake.glue, database)
    of = {} if namespace is None else {"airbyte.stream-namespace": namespace}
    entry: Any = {
        "Name": stream,
        "Parameters": {"airbyte.stream-name": stream, "airbyte.naming": "snake_case", **of},
        "StorageDescriptor": {"Location": location},
    }
    lake.glue.create_table(DatabaseName=database, TableInput=entry)


def test_existing_tables_are_logged_with_kind_and_location(platform: Platform, lake: Lake) -> None:
    location = f"s3://{lake.bucket}/{PREFIX}/{lake.database}/orders/data/"
    made_for(lake, "orders", location)

    run = platform.check(lake.config(table_type="HIVE"))

    assert run.connection_status == {"status": "SUCCEEDED"}
    assert f"INFO: Found: table {lake.database}.orders (Hive) at {location} holds stream orders." in run.logs


def test_a_table_of_the_other_kind_is_a_note(platform: Platform, lake: Lake) -> None:
    made_for(lake, "orders", f"s3://{lake.bucket}/{PREFIX}/{lake.database}/orders/data/")

    status = platform.check(lake.config(table_type="ICEBERG")).connection_status

    assert status["status"] == "SUCCEEDED"
    assert f"would refuse to write to {lake.database}.orders (Hive, stream orders)" in status["message"]


def test_tables_of_other_connections_in_the_database_of_a_namespace_fail_no_check(
    platform: Platform, lake: Lake
) -> None:
    made_for(lake, "orders", "s3://another-lake/shop/orders/", lake.name("shop"))

    assert platform.check(lake.config()).connection_status == {"status": "SUCCEEDED"}


def test_a_table_outside_bucket_prefix_is_refused_with_both_locations(platform: Platform, lake: Lake) -> None:
    made_for(lake, "orders", "s3://elsewhere/orders/")

    said = platform.check(lake.config()).refusal

    assert said.startswith(f"Cannot write stream orders to table {lake.database}.orders: its location is ")
    assert f"is s3://elsewhere/orders/, while bucket_name and bucket_prefix choose s3://{lake.bucket}/{PREFIX}/" in said
    assert "set follow_table_location to true" in said


def test_tables_outside_bucket_prefix_are_a_note_if_others_are_inside(platform: Platform, lake: Lake) -> None:
    """Two connections that differ in bucket or prefix may share a database."""
    made_for(lake, "users", f"s3://{lake.bucket}/{PREFIX}/{lake.database}/users/")
    made_for(lake, "orders", "s3://elsewhere/orders/")

    status = platform.check(lake.config(table_type="HIVE")).connection_status

    assert status["status"] == "SUCCEEDED"
    assert f"{lake.database}.orders (s3://elsewhere/orders/, stream orders)" in status["message"]
    assert "its syncs refuse their streams" in status["message"]


def test_the_bucket_of_a_followed_table_is_probed(platform: Platform, lake: Lake) -> None:
    made_for(lake, "orders", "s3://elsewhere-too/orders/")
    following = lake.config(follow_table_location=True, table_type="HIVE")

    said = platform.check(following).refusal
    assert "Cannot write to s3://elsewhere-too/orders/_check-" in said
    assert "the bucket does not exist" in said

    lake.s3.create_bucket(Bucket="elsewhere-too")
    assert platform.check(following).connection_status == {"status": "SUCCEEDED"}
    assert "Contents" not in lake.s3.list_objects_v2(Bucket="elsewhere-too")
