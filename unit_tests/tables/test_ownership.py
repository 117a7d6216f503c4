"""The stream that a table records, and streams to which other options give other tables or columns."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import PRESERVE, SNAKE_CASE, SNAKE_CASE_NUMBERS, STYLES, Naming
from destination_datalake.schema.types import NumericTypes
from destination_datalake.tables.naming import (
    OwnedTable,
    TableKind,
    TableNaming,
    TableOwner,
    relocations,
    tables_in_use,
)
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET

ORDERS = TableOwner(StreamId("shop", "orders"), SNAKE_CASE)


@given(st.none() | st.text(min_size=1), st.text(), st.sampled_from(list(STYLES.values())))
def test_the_recorded_owner_is_read_again(namespace: str | None, name: str, naming: object) -> None:
    owner = TableOwner(StreamId(namespace, name), naming)  # type: ignore[arg-type]

    assert TableOwner.load({"classification": "parquet", **owner.parameters()}) == owner


@pytest.mark.parametrize(
    ("recorded", "warnings"),
    [
        ({}, 0),
        (ORDERS.parameters(), 0),
        (TableOwner(ORDERS.stream, PRESERVE).parameters(), 0),
        (TableOwner(StreamId(None, "orders"), SNAKE_CASE).parameters(), 1),
        (TableOwner(StreamId("shop", "Orders"), SNAKE_CASE).parameters(), 1),
    ],
)
def test_a_table_of_another_stream_causes_a_warning(
    caplog: pytest.LogCaptureFixture, recorded: dict[str, str], warnings: int
) -> None:
    with caplog.at_level(logging.WARNING):
        ORDERS.name_columns(TableName("lake", "orders"), recorded, {}, ())

    assert len(caplog.messages) == warnings
    for message in caplog.messages:
        assert message.startswith("Table lake.orders was created for stream ")
        assert "and now also receives stream shop.orders" in message


def named(existing: dict[str, str], *sources: str) -> list[str]:
    columns = stream_columns({"properties": {source: {"type": "string"} for source in sources}}, NumericTypes.INT_FLOAT)
    return [column.name for column in ORDERS.name_columns(TableName("lake", "orders"), {}, existing, columns)]


def test_colliding_fields_cause_one_warning_with_their_columns(caplog: pytest.LogCaptureFixture) -> None:
    names = named({"id": "id", "x_y": "xY"}, "id", "a_b", "aB", "x y", "xY")

    assert names[:3] == ["id", "a_b", "a_b_042ac5b8"]
    assert names[4] == "x_y"
    [message] = caplog.messages
    assert message.startswith(
        "Stream shop.orders contains fields whose names collide, so a suffix distinguishes their columns: "
    )
    assert f"'a_b' is a_b, 'aB' is a_b_042ac5b8; 'x y' is {names[3]}, 'xY' is x_y." in message


def test_a_warning_names_the_first_twenty_collisions(caplog: pytest.LogCaptureFixture) -> None:
    named({}, *(f"{word}{number}" for number in range(25) for word in ("a b", "a-b")))

    [message] = caplog.messages
    assert message.count("'a b") == 20
    assert "; and 5 more." in message


def test_no_collision_warning_for_distinct_names(caplog: pytest.LogCaptureFixture) -> None:
    assert named({"id": "ID of the order", "a_b": "What b says"}, "id", "aB", "a_c") == ["id", "a_b", "a_c"]

    assert caplog.messages == []


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
                "which contains stream orders"
            ],
        ),
    ],
)
def test_a_stream_that_would_get_another_table_is_relocated(
    now: TableNaming, tables: list[OwnedTable], expected: list[str]
) -> None:
    assert list(relocations(tables, now)) == expected


@pytest.mark.parametrize(
    ("now", "columns", "expected"),
    [
        (SNAKE_CASE, {"order_id": "orderId", "address2": "address2"}, []),
        (
            PRESERVE,
            {"id": "id", "order_id": "orderId", "address2": "address2"},
            ["column order_id of table lake.users (stream users) would be replaced by column orderid"],
        ),
        (
            PRESERVE,
            {"the_home_zip_code": "$.theHome['zip code']"},
            [
                "column the_home_zip_code of table lake.users (stream users) would be replaced by column "
                "thehome_zip_code"
            ],
        ),
        (
            SNAKE_CASE_NUMBERS,
            {"order_id": "orderId", "address2": "address2", "v2": "v2"},
            [
                "column address2 of table lake.users (stream users) would be replaced by column address_2, and 1 more "
                "column would change"
            ],
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

    assert list(relocations(tables, replace(DEFAULT, naming=now))) == expected


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

    assert OwnedTable.from_glue("shop", glue_table) == OwnedTable(
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

    assert OwnedTable.from_glue("shop", glue_table) is None


@pytest.mark.parametrize(
    ("naming", "expected"),
    [
        (DEFAULT, ["lake.users"]),
        # Whether a sync will bring a stream of the namespace is not known.
        (replace(DEFAULT, database="shop"), ["shop.orders"]),
        (replace(DEFAULT, table_prefix="raw_"), []),
    ],
)
def test_tables_in_use_are_those_in_the_options_database_that_the_options_name(
    naming: TableNaming, expected: list[str]
) -> None:
    tables = [owned("shop.orders", "shop", "Orders"), owned("lake.users", None, "users"), owned("lake.x", None, "y")]

    assert [str(table.name) for table in tables_in_use(tables, naming)] == expected
