"""Streams and columns that a change of the naming options would relocate, by the owners that tables record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.names import PRESERVE, SNAKE_CASE, SNAKE_CASE_NUMBERS, Naming
from destination_datalake.tables.layout.location import TableKind
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.relocations import (
    OwnedTable,
    any_table_inside,
    relocations,
    tables_of_other_kind,
    tables_outside,
)
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET

DEFAULT = TableNaming("lake", "namespace", "", SNAKE_CASE)
SINGLE = replace(DEFAULT, strategy="single")


def owned(table: str, namespace: str | None, name: str, columns: Mapping[str, str] | None = None) -> OwnedTable:
    database, _, own = table.partition(".")
    owner = TableOwner(StreamId(namespace, name), SNAKE_CASE)
    where = f"s3://{BUCKET}/{database}/{own}"
    return OwnedTable(TableName(database, own), owner, tuple((columns or {}).items()), "Iceberg", where)


@pytest.mark.parametrize(
    ("now", "tables", "expected"),
    [
        (DEFAULT, [owned("shop.orders", "shop", "Orders"), owned("lake.users", None, "users")], []),
        (
            SINGLE,
            [owned("shop.orders", "shop", "Orders"), owned("lake.users", None, "users")],
            ["stream shop.Orders was written to table shop.orders and would now be written to lake.orders"],
        ),
        (
            replace(DEFAULT, table_prefix="raw_"),
            [owned("lake.users", None, "users")],
            ["stream users was written to table lake.users and would now be written to lake.raw_users"],
        ),
        (
            replace(DEFAULT, naming=PRESERVE),
            [owned("lake.order_lines", None, "orderLines", {"order_id": "orderId"})],
            ["stream orderLines was written to table lake.order_lines and would now be written to lake.orderlines"],
        ),
        (
            replace(DEFAULT, database="other"),
            [owned("lake.users", None, "users")],
            ["stream users was written to table lake.users and would now be written to other.users"],
        ),
        # A sync has created the other table since.
        (SINGLE, [owned("shop.orders", "shop", "orders"), owned("lake.orders", "shop", "orders")], []),
        # Another connection's tables, beside ours.
        (replace(DEFAULT, table_prefix="b_"), [owned("lake.users", None, "users"), owned("lake.b_x", None, "x")], []),
        (SINGLE, [owned("shop.orders", "shop", "orders"), owned("lake.users", "crm", "users")], []),
        # The target is owned by another stream of that name.
        (
            SINGLE,
            [owned("shop.orders", "shop", "orders"), owned("lake.orders", None, "orders")],
            [
                "stream shop.orders was written to table shop.orders and would now be written to lake.orders, "
                "which holds stream orders"
            ],
        ),
    ],
)
def test_a_stream_that_would_get_another_table_is_relocated(
    now: TableNaming, tables: list[OwnedTable], expected: list[str]
) -> None:
    assert [str(found) for found in relocations(tables, now)] == expected


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
            PRESERVE,
            {"the_home_zip_code": "$.theHome['zip code']"},
            ["column the_home_zip_code of table lake.users (stream users) would now be thehome_zip_code"],
        ),
        (
            SNAKE_CASE_NUMBERS,
            {"order_id": "orderId", "address2": "address2", "v2": "v2"},
            ["column address2 of table lake.users (stream users) would now be address_2 and 1 more would change too"],
        ),
        # Columns that a sync has added since, that others have added, that have a suffix, whose source is cut short.
        (PRESERVE, {"order_id": "orderId", "orderid": "orderId"}, []),
        (PRESERVE, {"theirs": "Not Ours"}, []),
        (PRESERVE, {"a_b_042ac5b8": "aB", "a__string": "a"}, []),
        (PRESERVE, {"x" * 255: "X" * 252 + "…"}, []),
        (PRESERVE, {"_airbyte_raw_id": "_airbyte_raw_id"}, []),
    ],
)
def test_a_column_that_would_get_another_name_is_renamed(
    now: Naming, columns: Mapping[str, str], expected: list[str]
) -> None:
    tables = [owned("lake.users", None, "users", columns)]

    assert [str(found) for found in relocations(tables, replace(DEFAULT, naming=now))] == expected


@pytest.mark.parametrize(("parameters", "kind"), [({}, "Hive"), ({"table_type": "ICEBERG"}, "Iceberg")])
def test_an_owned_table_is_read_from_glue_with_its_owner_kind_location_and_sources(
    parameters: Mapping[str, str], kind: TableKind
) -> None:
    owner = TableOwner(StreamId("shop", "Old Orders"), PRESERVE)
    columns = [{"Name": "id", "Type": "int"}, {"Name": "order_id", "Type": "int", "Comment": "orderId"}]
    glue_table: Any = {
        "Name": "orders",
        "Parameters": {**parameters, **owner.parameters()},
        "StorageDescriptor": {"Location": "s3://lake/raw/shop/orders/data/", "Columns": columns},
    }

    assert OwnedTable.of("shop", glue_table) == OwnedTable(
        TableName("shop", "orders"),
        owner,
        (("id", "id"), ("order_id", "orderId")),
        kind,
        "s3://lake/raw/shop/orders/data/",
    )


@pytest.mark.parametrize(
    "parameters",
    [{}, {"owner": "somebody"}, {"airbyte.stream-name": "orders", "airbyte.naming": "of a later version"}],
)
def test_a_table_without_a_known_owner_is_not_owned(parameters: Mapping[str, str]) -> None:
    glue_table: Any = {"Name": "orders", "Parameters": parameters}

    assert OwnedTable.of("shop", glue_table) is None


@pytest.mark.parametrize(
    ("warehouse", "naming", "expected"),
    [
        (f"s3://{BUCKET}/", DEFAULT, []),
        (f"s3://{BUCKET}/raw/", DEFAULT, ["lake.users"]),
        # Whether a sync will bring a stream of the namespace is not known.
        (f"s3://{BUCKET}/raw/", replace(DEFAULT, database="shop"), ["shop.orders"]),
        ("s3://other/", replace(DEFAULT, table_prefix="raw_"), []),
    ],
)
def test_tables_in_use_outside_the_warehouse_are_found(
    warehouse: str, naming: TableNaming, expected: list[str]
) -> None:
    tables = [owned("shop.orders", "shop", "Orders"), owned("lake.users", None, "users")]

    assert [str(table.name) for table in tables_outside(tables, naming, warehouse)] == expected


@pytest.mark.parametrize(
    ("naming", "found"),
    [
        (DEFAULT, True),
        (replace(DEFAULT, database="shop"), False),
        # Existing tables that these options do not name do not count.
        (replace(DEFAULT, table_prefix="raw_"), False),
    ],
)
def test_any_table_inside_the_warehouse_counts_if_the_options_name_it(naming: TableNaming, found: bool) -> None:
    tables = [owned("shop.orders", "shop", "Orders"), owned("lake.users", None, "users")]

    assert any_table_inside(tables, naming, f"s3://{BUCKET}/lake/") == found


def test_tables_of_the_other_kind_are_found_in_the_options_database_only() -> None:
    tables = [owned("shop.orders", "shop", "Orders"), owned("lake.users", None, "users"), owned("lake.x", None, "y")]

    assert [str(table.name) for table in tables_of_other_kind(tables, DEFAULT, "Hive")] == ["lake.users"]
    assert list(tables_of_other_kind(tables, DEFAULT, "Iceberg")) == []
