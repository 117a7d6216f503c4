"""Coming from Airbyte's S3 Data Lake destination: its tables go on in their own columns."""

import json
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from integration_tests.conformance.migration.s3_data_lake import STAGING, S3DataLake, as_json
from integration_tests.documentation.blocks import blocks
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import EMITTED_AT, Json, configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import BOOLEAN, INTEGER, NUMBER, STRING, object_schema

pytestmark = pytest.mark.share(1)

DATE_TIME: Json = {"type": "string", "format": "date-time"}
[_, BLOCK] = blocks("docs/operating/migrating.md", language="json")
OF_EVERY_LAKE = ("credentials", "region", "bucket_name", "bucket_prefix", "lakeformation_database_name")
OPTIONS: dict[str, Any] = {name: value for name, value in json.loads(BLOCK.body).items() if name not in OF_EVERY_LAKE}
"""What docs/operating/migrating.md says to set, but for those that lakes have different values for."""

SCHEMA = object_schema(
    id=INTEGER,
    orderNo=STRING,
    **{"unit-price": NUMBER},
    paid=BOOLEAN,
    dueOn={"type": "string", "format": "date"},
    placedAt=DATE_TIME,
    seenAt={**DATE_TIME, "airbyte_type": "timestamp_without_timezone"},
    opens={"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
    points={"type": "integer", "airbyte_type": "big_integer"},
    buyer=object_schema(name=STRING),
    open={"type": "object"},
    either={"type": ["string", "integer"]},
    tags={"type": "array", "items": STRING},
    lines={"type": "array", "items": object_schema(sku=STRING)},
    anything={"type": "array"},
)


def a_list(element: IcebergType) -> ListType:
    return ListType(element_id=90, element_type=element, element_required=False)


TYPES: dict[str, IcebergType] = {
    "id": LongType(),
    "orderNo": StringType(),
    "unit-price": DoubleType(),
    "paid": BooleanType(),
    "dueOn": DateType(),
    "placedAt": TimestamptzType(),
    "seenAt": TimestampType(),
    "opens": TimeType(),
    "points": LongType(),
    "buyer": StringType(),
    "open": StringType(),
    "either": StringType(),
    "tags": a_list(StringType()),
    "lines": ListType(element_id=91, element_type=StringType(), element_required=False),
    "anything": StringType(),
}
"""The schema's columns as S3 Data Lake made them."""

SENT: dict[str, Any] = {
    "id": 2,
    "orderNo": "A-2",
    "unit-price": 1.5,
    "paid": True,
    "dueOn": "2024-03-01",
    "placedAt": "2024-02-29T12:00:00Z",
    "seenAt": "2024-02-29T12:00:00",
    "opens": "08:30:00",
    "points": 2**40,
    "buyer": {"name": "Ann", "more": 1},
    "open": {"a": 1},
    "either": "x",
    "tags": ["a"],
    "lines": [{"sku": "s", "more": 1}],
    "anything": [1, "a"],
}


def sync(platform: Platform, config: Json, schema: Json, *rows: Json, stream: str = "orders", **how: Any) -> Run:
    configured = configured_stream(stream, schema, **how)
    lines = [*(record(stream, row) for row in rows), status(stream, "COMPLETE")]
    return platform.write(config, configured_catalog(configured), lines)


def ids(lake: Lake, table: str = "orders") -> list[int]:
    return sorted(row["id"] for row in lake.rows(lake.database, table))


def test_every_column_goes_on_in_its_name_and_type(lake: Lake, platform: Platform) -> None:
    """But a time of day, which gets a column of text; the catalog's columns are as they were, and so are old rows."""
    old = S3DataLake(lake, "orderitems")
    old.create(TYPES)
    old.sync({"id": 1, "orderNo": "A-1", "buyer": as_json({"name": "Bob"})})
    before = old.table().schema().fields

    runs = [sync(platform, lake.config(**OPTIONS), SCHEMA, {**SENT, "id": id_}, stream="orderItems") for id_ in (2, 3)]

    assert [run.exit_code for run in runs] == [0, 0], runs[0].report()
    assert lake.tables() == [(lake.database, "orderitems")]
    fields = old.table().schema().fields
    assert fields[: len(before)] == before
    assert [field.name for field in fields[len(before) :]] == ["opens__string"]
    first, row, _ = sorted(lake.rows(lake.database, "orderitems"), key=lambda row: row["id"])
    assert (first["orderNo"], first["buyer"]) == ("A-1", '{"name":"Bob"}')
    assert row["_airbyte_extracted_at"] == int(EMITTED_AT)
    assert row["_airbyte_meta"] == {"sync_id": 1, "changes": []}
    assert (row["orderNo"], row["unit-price"], row["points"], row["tags"]) == ("A-2", 1.5, 2**40, ["a"])
    assert (row["opens"], row["opens__string"]) == (None, "08:30:00")
    assert json.loads(row["buyer"]) == SENT["buyer"]
    assert json.loads(row["open"]) == SENT["open"]
    assert json.loads(row["either"]) == "x"
    assert [json.loads(line) for line in row["lines"]] == SENT["lines"]
    assert json.loads(row["anything"]) == [1, "a"]


@pytest.mark.slow
def test_a_refresh_replaces_its_rows_and_leaves_its_branch(lake: Lake, platform: Platform) -> None:
    """Equality deletes and what a failed sync has staged are of rows that the refresh sends again."""
    old = S3DataLake(lake, "orders", ["id"])
    old.create({"id": LongType(), "price": DecimalType(38, 18)})
    old.sync({"id": 1})
    old.sync({"id": 1}, {"id": 2})
    old.sync({"id": 3}, succeeds=False)
    schema = object_schema(id=INTEGER, price=NUMBER)

    run = sync(platform, lake.config(), schema, {"id": 4, "price": 1.25}, generation=1, minimum=1)

    assert run.exit_code == 0, run.report()
    [row] = lake.rows(lake.database, "orders")
    assert (row["id"], row["price"]) == (4, Decimal("1.25"))
    assert STAGING in old.table().refs()


def test_an_append_publishes_the_rows_that_a_failed_sync_has_left(lake: Lake, platform: Platform) -> None:
    """They were acknowledged; check says so before."""
    old = S3DataLake(lake, "orders")
    old.create({"id": LongType()})
    old.sync({"id": 1})
    old.sync({"id": 2}, succeeds=False)
    old.sync({"id": 3}, succeeds=False)

    status = platform.check(lake.config(**OPTIONS)).connection_status
    runs = [sync(platform, lake.config(**OPTIONS), object_schema(id=INTEGER), {"id": id_}) for id_ in (4, 5)]

    assert status["status"] == "SUCCEEDED"
    assert f"its branch {STAGING} contains rows of a failed sync" in status["message"]
    assert [run.exit_code for run in runs] == [0, 0], runs[0].report()
    assert ids(lake) == [1, 2, 3, 4, 5]
    assert [len([text for text in run.logs if STAGING in text]) for run in runs] == [1, 0]


@pytest.mark.slow
def test_check_tells_of_staged_rows_that_no_sync_publishes(lake: Lake, platform: Platform) -> None:
    """Main has gone on without them, by a compaction for example."""
    old = S3DataLake(lake, "orders")
    old.create({"id": LongType()})
    old.sync({"id": 1})
    old.sync({"id": 2}, succeeds=False)
    old.sync({"id": 3}, branch=f"{STAGING}_0a1b")

    status = platform.check(lake.config(**OPTIONS)).connection_status
    run = sync(platform, lake.config(), object_schema(id=INTEGER), {"id": 4})

    assert f"the history of its branch {STAGING} does not contain the head of main" in status["message"]
    assert run.exit_code == 0, run.report()
    assert ids(lake) == [1, 3, 4]


@pytest.mark.share(1)
@pytest.mark.parametrize("branch", [STAGING, f"{STAGING}_0a1b"])
def test_a_table_that_never_had_a_sync_that_succeeded_goes_on(lake: Lake, platform: Platform, branch: str) -> None:
    old = S3DataLake(lake, "orders")
    old.create({"id": LongType()})
    old.sync({"id": 1}, succeeds=False, branch=branch)

    run = sync(platform, lake.config(), object_schema(id=INTEGER), {"id": 2})

    assert run.exit_code == 0, run.report()
    assert ids(lake) == [1, 2]


@pytest.mark.slow
def test_a_table_without_equality_deletes_is_deduplicated(lake: Lake, platform: Platform) -> None:
    """Its key is of a type that floats are no match for; the later of two rows wins, whoever wrote it."""
    old = S3DataLake(lake, "orders", ["id"], deletes=False)
    old.create({"id": DecimalType(38, 18), "name": StringType()})
    old.sync({"id": Decimal(1), "name": "old"}, {"id": Decimal(2), "name": "old"})
    schema = object_schema(id=NUMBER, name=STRING)
    rows: list[Json] = [{"id": 1, "name": "new"}, {"id": 3, "name": "new"}]

    runs = [sync(platform, lake.config(), schema, row, mode="append_dedup", primary_key=["id"]) for row in rows]

    assert [run.exit_code for run in runs] == [0, 0], runs[0].report()
    got = sorted((int(row["id"]), row["name"]) for row in lake.rows(lake.database, "orders"))
    assert got == [(1, "new"), (2, "old"), (3, "new")]


@pytest.mark.slow
def test_equality_deletes_are_refused_before_the_first_record_with_the_statement_that_removes_them(
    lake: Lake, platform: Platform
) -> None:
    """By syncs with deduplication; check says so, and a sync that appends goes on."""
    old = S3DataLake(lake, "orders", ["id"])
    old.create({"id": LongType(), "name": StringType()})
    old.sync({"id": 1, "name": "a"})
    old.sync({"id": 1, "name": "b"})
    schema, before = object_schema(id=INTEGER, name=STRING), lake.objects()
    statement = (
        f"CALL system.rewrite_data_files(table => '{lake.database}.orders', "
        "options => map('delete-file-threshold', '1'))"
    )

    status = platform.check(lake.config(**OPTIONS)).connection_status
    run = sync(platform, lake.config(), schema, {"id": 2}, mode="append_dedup", primary_key=["id"])
    objects = lake.objects()
    appended = sync(platform, lake.config(), schema, {"id": 2})

    assert status["status"] == "SUCCEEDED"
    assert statement in status["message"]
    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert statement in error["message"]
    assert objects == before
    assert appended.exit_code == 0, appended.report()


@pytest.mark.slow
def test_a_record_without_a_value_for_a_key_is_refused_with_statements_that_an_engine_takes(
    lake: Lake, platform: Platform
) -> None:
    """Identifier fields are required for as long as they are ones."""
    old = S3DataLake(lake, "orders", ["id"])
    old.create({"id": LongType(), "name": StringType()})
    old.sync({"id": 1, "name": "a"})

    run = sync(platform, lake.config(), object_schema(id=INTEGER, name=STRING), {"name": "b"})

    assert run.exit_code == 1
    [error] = run.errors
    assert (
        "its column id is required, but some records contain no value for this column. Make the column optional "
        "(ALTER TABLE ... DROP IDENTIFIER FIELDS id, then ALTER TABLE ... ALTER COLUMN id DROP NOT NULL)"
        in error["message"]
    )


@pytest.mark.slow
def test_no_second_table_is_begun_beside_its_own(lake: Lake, platform: Platform) -> None:
    """An error names both, and the option that goes on with the first."""
    old = S3DataLake(lake, "orderitems")
    old.create({"id": LongType()})
    old.sync({"id": 1})

    run = sync(platform, lake.config(), object_schema(id=INTEGER), {"id": 2}, stream="orderItems")

    assert run.exit_code == 1
    [error] = run.errors
    assert (
        f"table {lake.database}.order_items: Airbyte's S3 Data Lake destination created table "
        f"{lake.database}.orderitems" in error["message"]
    )
    assert f"To continue table {lake.database}.orderitems, set naming.style to preserve" in error["message"]
    assert lake.tables() == [(lake.database, "orderitems")]


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bucket_prefix": "elsewhere"}, "its location is s3://"),
        ({"table_type": "HIVE"}, "it is an Iceberg table, but table_type is HIVE"),
        ({}, "set naming.style to preserve"),
    ],
)
def test_check_tells_what_a_sync_would_refuse(
    lake: Lake, platform: Platform, options: dict[str, Any], says: str
) -> None:
    """Of tables that record no owner, whose streams are not known."""
    old = S3DataLake(lake, "orderitems")
    old.create({"id": LongType()})

    answer = platform.check(lake.config(**options)).connection_status

    assert answer["status"] == "SUCCEEDED"
    assert f"{lake.database}.orderitems" in answer["message"]
    assert says in answer["message"]


@pytest.mark.slow
def test_check_says_nothing_of_its_tables_where_all_goes_on(lake: Lake, platform: Platform) -> None:
    old = S3DataLake(lake, "orderitems")
    old.create({"id": LongType()})
    old.sync({"id": 1})

    assert platform.check(lake.config(**OPTIONS)).connection_status == {"status": "SUCCEEDED"}
