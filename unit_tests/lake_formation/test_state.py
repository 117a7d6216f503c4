"""Resources, as requests and answers have them."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.lake_formation.state import (
    AllTables,
    Catalog,
    Column,
    ColumnsExcept,
    Database,
    DataLocation,
    LfTag,
    Resource,
    Table,
    from_answer,
    to_request,
)

SHOP = {"DatabaseName": "shop"}


@pytest.mark.parametrize(
    ("resource", "request_", "text"),
    [
        (Catalog(), {"Catalog": {}}, "the Data Catalog"),
        (DataLocation("arn:s3"), {"DataLocation": {"ResourceArn": "arn:s3"}}, "data location arn:s3"),
        (Database("shop"), {"Database": {"Name": "shop"}}, "database shop"),
        (AllTables("shop"), {"Table": {**SHOP, "TableWildcard": {}}}, "all tables of database shop"),
        (Table("shop", "orders"), {"Table": {**SHOP, "Name": "orders"}}, "table shop.orders"),
        (
            Column("shop", "orders", "id"),
            {"TableWithColumns": {**SHOP, "Name": "orders", "ColumnNames": ["id"]}},
            "column id of table shop.orders",
        ),
        (
            ColumnsExcept("shop", "orders", frozenset({"id", "at"})),
            {"TableWithColumns": {**SHOP, "Name": "orders", "ColumnWildcard": {"ExcludedColumnNames": ["at", "id"]}}},
            "columns of table shop.orders except at, id",
        ),
        (LfTag("pii", ("*",)), {"LFTag": {"TagKey": "pii", "TagValues": ["*"]}}, "LF-Tag pii"),
    ],
)
def test_a_resource_in_a_request_and_in_a_sentence(resource: Resource, request_: dict[str, Any], text: str) -> None:
    assert to_request(resource) == request_
    assert str(resource) == text


@pytest.mark.parametrize(
    ("answer", "resources"),
    [
        ({"Database": {"CatalogId": "1", "Name": "shop"}}, [Database("shop")]),
        ({"DataLocation": {"ResourceArn": "arn:s3/"}}, [DataLocation("arn:s3")]),
        ({"Table": {**SHOP, "Name": "orders"}}, [Table("shop", "orders")]),
        ({"Table": {**SHOP, "Name": "ALL_TABLES", "TableWildcard": {}}}, [AllTables("shop")]),
        ({"TableWithColumns": {**SHOP, "Name": "orders", "ColumnWildcard": {}}}, [Table("shop", "orders")]),
        ({"TableWithColumns": {**SHOP, "Name": "ALL_TABLES", "ColumnWildcard": {}}}, [AllTables("shop")]),
        (
            {"TableWithColumns": {**SHOP, "Name": "o", "ColumnWildcard": {"ExcludedColumnNames": ["Id"]}}},
            [ColumnsExcept("shop", "o", frozenset({"id"}))],
        ),
        (
            {"TableWithColumns": {**SHOP, "Name": "orders", "ColumnNames": ["Id", "at"]}},
            [Column("shop", "orders", "id"), Column("shop", "orders", "at")],
        ),
        ({"LFTagPolicy": {"ResourceType": "TABLE", "Expression": []}}, []),
    ],
)
def test_an_answer_means_resources(answer: dict[str, Any], resources: list[Resource]) -> None:
    assert from_answer(answer) == resources
