"""Which tables a configuration's commands find in the catalog."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.glue.catalog import DATABASE_DESCRIPTION
from destination_datalake.tables.naming import TableFinder
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud, another_client, before, ungoverned
from unit_tests.maintenance.lake import Shop

OURS = {"table_type": "ICEBERG", "airbyte.stream-namespace": "shop", "airbyte.stream-name": "orders"}
OURS |= {"airbyte.naming": "snake_case"}


def add(
    cloud: Cloud,
    name: str,
    *,
    database: str = "shop",
    parameters: dict[str, str],
    location: str = f"s3://{BUCKET}/lake/shop/orders",
    description: str = DATABASE_DESCRIPTION,
) -> None:
    glue = cloud.access.client("glue")
    if database not in {entry["Name"] for entry in glue.get_databases()["DatabaseList"]}:
        glue.create_database(DatabaseInput={"Name": database, "Description": description})
    storage: Any = {"Location": location}
    glue.create_table(
        DatabaseName=database, TableInput={"Name": name, "Parameters": parameters, "StorageDescriptor": storage}
    )


def finder(cloud: Cloud, **changes: Any) -> TableFinder:
    cloud.access.client("glue").create_database(DatabaseInput={"Name": "raw"})
    return TableFinder(Shop(cloud, **changes).config, ungoverned(cloud.access))


@pytest.mark.parametrize(
    ("table", "changes", "is_found"),
    [
        pytest.param({}, {}, True, id="a table of the connector's"),
        pytest.param({"parameters": {"table_type": "ICEBERG"}}, {}, False, id="a table of others"),
        pytest.param({"parameters": {**OURS, "airbyte.naming": "new"}}, {}, False, id="of another version"),
        pytest.param({"name": "orders_2"}, {}, False, id="another name than the stream's"),
        pytest.param({}, {"table_prefix": "x_"}, False, id="of a configuration with another prefix"),
        pytest.param({"location": f"s3://{BUCKET}/other/shop/orders"}, {}, False, id="in another folder"),
        pytest.param({"location": f"s3://{BUCKET}/lake2/shop/orders"}, {}, False, id="in a folder that begins so"),
        pytest.param({"location": "s3://other/lake/shop/orders"}, {}, False, id="in another bucket"),
        pytest.param({"location": ""}, {}, False, id="nowhere"),
        pytest.param(
            {"location": "s3://other/orders"}, {"follow_table_location": True}, True, id="elsewhere, and followed"
        ),
        pytest.param({"parameters": {**OURS, "table_type": ""}}, {}, False, id="a Hive table"),
        pytest.param({"description": "of others"}, {}, False, id="in a database of others"),
        pytest.param(
            {"database": "raw", "description": "of others"},
            {"database_strategy": "single"},
            True,
            id="in the one database, whoever made it",
        ),
    ],
)
def test_a_configuration_s_tables(cloud: Cloud, table: Any, changes: dict[str, Any], *, is_found: bool) -> None:
    finds = finder(cloud, **changes)
    given: dict[str, Any] = {"name": "orders", "parameters": OURS, **table}
    add(cloud, given.pop("name"), **given)

    expected = [TableName(given.get("database", "shop"), "orders")] if is_found else []
    assert finds.tables([]) == expected


def test_a_stream_s_table_is_found_in_a_database_of_others_too(cloud: Cloud) -> None:
    finds = finder(cloud)
    add(cloud, "orders", parameters=OURS, description="of others")

    assert finds.tables([]) == []
    assert finds.tables(["shop.orders"]) == [TableName("shop", "orders")]


def test_names_with_dots_are_found_wherever_their_namespace_ends(cloud: Cloud) -> None:
    shop, finds = Shop(cloud), finder(cloud)
    streams = [StreamId("eu.shop", "orders"), StreamId("eu", "shop.items"), StreamId(None, "eu.shop.all")]
    for stream in streams:
        shop.open(stream)

    assert finds.tables(["eu.shop.orders"]) == [shop.name(streams[0])]
    assert finds.tables(["eu.shop.items"]) == [shop.name(streams[1])]
    assert finds.tables(["eu.shop.all", "eu.shop.all"]) == [shop.name(streams[2])]
    assert finds.tables([]) == sorted(map(shop.name, streams))


@pytest.mark.parametrize("stream", ["shop.items", "orders", "", ".", "Shop.Orders"])
def test_a_stream_without_a_table_is_refused(cloud: Cloud, stream: str) -> None:
    finds = finder(cloud)
    add(cloud, "orders", parameters=OURS)

    with pytest.raises(ConfigError, match="this configuration has no Iceberg table"):
        finds.tables([stream])


def test_who_may_not_list_databases_is_told_and_has_one(cloud: Cloud) -> None:
    finder(cloud)
    add(cloud, "orders", database="raw", parameters={**OURS, "airbyte.stream-namespace": ""})
    access = another_client()

    def deny(_: int) -> None:
        response: Any = {"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}
        raise ClientError(response, "GetDatabases")

    before(access, "glue", "GetDatabases", deny)
    finds = TableFinder(Shop(cloud).config, ungoverned(access))

    assert finds.tables([]) == [TableName("raw", "orders")]
    assert "Only database raw was searched" in finds.notes[0]


def test_a_database_that_may_not_be_read_is_told_and_the_others_are_looked_at(cloud: Cloud) -> None:
    # Given the tables of two databases that the connector has created, one of them by another identity
    finder(cloud)
    add(cloud, "orders", database="raw", parameters={**OURS, "airbyte.stream-namespace": ""})
    cloud.access.client("glue").create_database(
        DatabaseInput={"Name": "theirs", "Description": DATABASE_DESCRIPTION},
    )
    access, listed = another_client(), iter(["raw", "theirs"])

    def deny(_: int) -> None:
        if next(listed) == "theirs":
            response: Any = {"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}
            raise ClientError(response, "GetTables")

    before(access, "glue", "GetTables", deny)
    finds = TableFinder(Shop(cloud).config, ungoverned(access))

    # Then the one that may be read is looked at
    assert finds.tables([]) == [TableName("raw", "orders")]
    assert finds.notes[0].endswith(" were skipped.")
