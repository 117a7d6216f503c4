"""What a change of the naming options would give up, from what the tables in the catalog say of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.names import PRESERVE, SNAKE_CASE, SNAKE_CASE_NUMBERS, Naming
from destination_datalake.tables.glue.database import ensure_database
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.relocations import (
    OwnedTable,
    any_table_inside,
    list_owned_tables,
    relocations,
    tables_of_other_kind,
    tables_outside,
)
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.cloud import cloud as an_account

DEFAULT = TableNaming("lake", "namespace", "", SNAKE_CASE)
SINGLE = replace(DEFAULT, strategy="single")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def known(table: str, namespace: str | None, name: str, columns: Mapping[str, str] | None = None) -> OwnedTable:
    database, _, own = table.partition(".")
    owner = TableOwner(StreamId(namespace, name), SNAKE_CASE)
    where = f"s3://{BUCKET}/{database}/{own}"
    return OwnedTable(TableName(database, own), owner, tuple((columns or {}).items()), "Iceberg", where)


@pytest.mark.parametrize(
    ("now", "tables", "expected"),
    [
        (DEFAULT, [known("shop.orders", "shop", "Orders"), known("lake.users", None, "users")], []),
        (
            SINGLE,
            [known("shop.orders", "shop", "Orders"), known("lake.users", None, "users")],
            ["stream shop.Orders was written to table shop.orders and would now be written to lake.orders"],
        ),
        (
            replace(DEFAULT, table_prefix="raw_"),
            [known("lake.users", None, "users")],
            ["stream users was written to table lake.users and would now be written to lake.raw_users"],
        ),
        (
            replace(DEFAULT, naming=PRESERVE),
            [known("lake.order_lines", None, "orderLines", {"order_id": "orderId"})],
            ["stream orderLines was written to table lake.order_lines and would now be written to lake.orderlines"],
        ),
        (
            replace(DEFAULT, database="other"),
            [known("lake.users", None, "users")],
            ["stream users was written to table lake.users and would now be written to other.users"],
        ),
        # A sync has been there since.
        (SINGLE, [known("shop.orders", "shop", "orders"), known("lake.orders", "shop", "orders")], []),
        # Another connection's tables, beside ours.
        (replace(DEFAULT, table_prefix="b_"), [known("lake.users", None, "users"), known("lake.b_x", None, "x")], []),
        (SINGLE, [known("shop.orders", "shop", "orders"), known("lake.users", "crm", "users")], []),
        # What is there holds another stream of that name.
        (
            SINGLE,
            [known("shop.orders", "shop", "orders"), known("lake.orders", None, "orders")],
            [
                "stream shop.orders was written to table shop.orders and would now be written to lake.orders, "
                "which holds stream orders"
            ],
        ),
    ],
)
def test_a_stream_that_would_get_another_table_is_told(
    now: TableNaming, tables: list[OwnedTable], expected: list[str]
) -> None:
    assert [str(move) for move in relocations(tables, now)] == expected


@pytest.mark.parametrize(
    ("now", "columns", "expected"),
    [
        (SNAKE_CASE, {"order_id": "orderId", "address2": "address2"}, []),
        (
            PRESERVE,
            {"id": "id", "order_id": "orderId", "address2": "address2"},
            ["column order_id of table lake.users (stream users) would now be orderid"],
        ),
        (
            SNAKE_CASE_NUMBERS,
            {"order_id": "orderId", "address2": "address2", "v2": "v2"},
            ["column address2 of table lake.users (stream users) would now be address_2 and 1 more would change too"],
        ),
        # Columns that a sync has made since, that others have made, that have a suffix, that lost their name's end.
        (PRESERVE, {"order_id": "orderId", "orderid": "orderId"}, []),
        (PRESERVE, {"theirs": "Not Ours"}, []),
        (PRESERVE, {"a_b_042ac5b8": "aB", "a__string": "a"}, []),
        (PRESERVE, {"x" * 255: "X" * 252 + "…"}, []),
        (PRESERVE, {"_airbyte_raw_id": "_airbyte_raw_id"}, []),
    ],
)
def test_a_column_that_would_get_another_name_is_told(
    now: Naming, columns: Mapping[str, str], expected: list[str]
) -> None:
    tables = [known("lake.users", None, "users", columns)]

    assert [str(move) for move in relocations(tables, replace(DEFAULT, naming=now))] == expected


def test_tables_are_known_by_what_they_say_in_our_databases(cloud: Cloud) -> None:
    glue = cloud.access.client("glue")
    ensure_database(glue, "shop")
    for database in ("lake", "theirs"):
        glue.create_database(DatabaseInput={"Name": database})

    def table(name: str, folder: str, parameters: Mapping[str, str]) -> None:
        database, _, own = name.partition(".")
        columns = [{"Name": "id", "Type": "int"}, {"Name": "order_id", "Type": "int", "Comment": "orderId"}]
        storage = {"Location": f"s3://{BUCKET}/{folder}/{own}/data/", "Columns": columns}
        entry = {"Name": own, "Parameters": dict(parameters), "StorageDescriptor": storage}
        glue.create_table(DatabaseName=database, TableInput=entry)  # type: ignore[arg-type]

    owners = [TableOwner(StreamId(None, "Old Orders"), PRESERVE), TableOwner(StreamId("shop", "orders"), SNAKE_CASE)]
    table("lake.a", "raw/lake", owners[0].parameters())
    table("lake.b", "raw2/lake", owners[0].parameters())
    table("shop.a", "raw/shop", {"table_type": "ICEBERG", **owners[1].parameters()})
    # A database that is not ours; a table that says nothing, and one of a version to come.
    table("theirs.a", "raw/theirs", owners[0].parameters())
    table("shop.c", "raw/shop", {"owner": "somebody"})
    table("shop.d", "raw/shop", {**owners[0].parameters(), "airbyte.naming": "unheard of"})

    found = list_owned_tables(glue, "lake")

    columns = (("id", "id"), ("order_id", "orderId"))
    assert found == [
        OwnedTable(TableName("lake", "a"), owners[0], columns, "Hive", f"s3://{BUCKET}/raw/lake/a/data/"),
        OwnedTable(TableName("lake", "b"), owners[0], columns, "Hive", f"s3://{BUCKET}/raw2/lake/b/data/"),
        OwnedTable(TableName("shop", "a"), owners[1], columns, "Iceberg", f"s3://{BUCKET}/raw/shop/a/data/"),
    ]
    assert list_owned_tables(glue, "theirs")[0].name == ("theirs", "a")


@pytest.mark.parametrize("operation", ["GetDatabases", "GetTables"])
def test_tables_of_the_options_own_database_are_known_where_nobody_may_look_into_others(
    cloud: Cloud, operation: str
) -> None:
    access = another_client()
    for database in ("lake", "shop"):
        ensure_database(cloud.access.client("glue"), database)
        entry = {"Name": "orders", "Parameters": TableOwner(StreamId(None, "orders"), SNAKE_CASE).parameters()}
        cloud.access.client("glue").create_table(DatabaseName=database, TableInput=entry)  # type: ignore[arg-type]

    def refuse(times: int) -> None:
        if operation == "GetDatabases" or times > 1:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}, operation)

    before(access, "glue", operation, refuse)

    assert [str(table.name) for table in list_owned_tables(access.client("glue"), "lake")] == ["lake.orders"]


@pytest.mark.parametrize(
    ("within", "naming", "expected"),
    [
        (f"s3://{BUCKET}/", DEFAULT, []),
        (f"s3://{BUCKET}/raw/", DEFAULT, ["lake.users"]),
        # Whether a namespace's table will be asked for, nobody knows before a sync.
        (f"s3://{BUCKET}/raw/", replace(DEFAULT, database="shop"), ["shop.orders"]),
        ("s3://other/", replace(DEFAULT, table_prefix="raw_"), []),
    ],
)
def test_tables_of_our_streams_that_lie_elsewhere_are_strays(
    within: str, naming: TableNaming, expected: list[str]
) -> None:
    tables = [known("shop.orders", "shop", "Orders"), known("lake.users", None, "users")]

    assert [str(table.name) for table in tables_outside(tables, naming, within)] == expected


@pytest.mark.parametrize(
    ("naming", "home"),
    [
        (DEFAULT, True),
        (replace(DEFAULT, database="shop"), False),
        # Tables that are there, and that these options do not name, do not make it theirs.
        (replace(DEFAULT, table_prefix="raw_"), False),
    ],
)
def test_options_are_at_home_where_a_table_that_they_name_lies(naming: TableNaming, home: bool) -> None:
    tables = [known("shop.orders", "shop", "Orders"), known("lake.users", None, "users")]

    assert any_table_inside(tables, naming, f"s3://{BUCKET}/lake/") == home


def test_tables_of_another_kind_than_is_asked_for_are_found_in_the_options_own_database() -> None:
    tables = [known("shop.orders", "shop", "Orders"), known("lake.users", None, "users"), known("lake.x", None, "y")]

    assert [str(table.name) for table in tables_of_other_kind(tables, DEFAULT, "Hive")] == ["lake.users"]
    assert list(tables_of_other_kind(tables, DEFAULT, "Iceberg")) == []


def test_every_page_of_the_catalog_is_read(cloud: Cloud) -> None:
    glue = cloud.access.client("glue")
    ensure_database(glue, "lake")
    for number in range(120):
        owner = TableOwner(StreamId(None, f"s{number}"), SNAKE_CASE)
        storage = {"Location": f"s3://{BUCKET}/s{number}/"}
        entry = {"Name": f"s{number}", "Parameters": owner.parameters(), "StorageDescriptor": storage}
        glue.create_table(DatabaseName="lake", TableInput=entry)  # type: ignore[arg-type]

    assert len(list_owned_tables(glue, "lake")) == 120


def test_of_many_databases_the_latest_are_read(cloud: Cloud) -> None:
    glue = cloud.access.client("glue")
    owner = TableOwner(StreamId(None, "orders"), SNAKE_CASE)
    for number in range(60):
        # The first by name is made last.
        database = f"lake_{99 - number}"
        ensure_database(glue, database)
        storage = {"Location": f"s3://{BUCKET}/{database}/"}
        entry = {"Name": "orders", "Parameters": owner.parameters(), "StorageDescriptor": storage}
        glue.create_table(DatabaseName=database, TableInput=entry)  # type: ignore[arg-type]

    found = {table.name.database for table in list_owned_tables(glue, "lake_99")}

    assert found == {"lake_99", *(f"lake_{number}" for number in range(40, 90))}
