"""Requests name the Data Catalog that is configured, wherever their inputs can; if none is configured, they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.session import Session
from moto.core.botocore_stubber import MockRawResponse

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.aws.session import name_catalog

OURS = "210987654321"
THEIRS = "333333333333"
IN_ANOTHER_REGION = AwsAccess(
    "eu-west-1", AccessKeys("AKIA", "s"), "http://localhost:1", glue_region="eu-central-1", glue_catalog_id=OURS
)


def sent(client: Any, operation: str, request: dict[str, Any]) -> Any:
    """What a call sends as its body."""
    bodies = []

    def answer(request: Any, **_: object) -> AWSResponse:
        bodies.append(request.body)
        raw: Any = MockRawResponse(b"{}")
        return AWSResponse(request.url, 200, HTTPHeaders(), raw)

    client.meta.events.register("before-send", answer)
    try:
        getattr(client, operation)(**request)
    finally:
        client.meta.events.unregister("before-send", answer)
    return json.loads(bodies[0])


@pytest.mark.parametrize(
    ("operation", "request_", "expected"),
    [
        ("get_database", {"Name": "shop"}, {"Name": "shop", "CatalogId": OURS}),
        ("get_database", {"Name": "shop", "CatalogId": THEIRS}, {"Name": "shop", "CatalogId": THEIRS}),
        # What a resource link points to is in a catalog of its own.
        (
            "create_database",
            {"DatabaseInput": {"Name": "link", "TargetDatabase": {"DatabaseName": "shop"}}},
            {"DatabaseInput": {"Name": "link", "TargetDatabase": {"DatabaseName": "shop"}}, "CatalogId": OURS},
        ),
        # Input without a catalog's id.
        ("get_tags", {"ResourceArn": "arn:aws:glue:r:1:x"}, {"ResourceArn": "arn:aws:glue:r:1:x"}),
    ],
)
def test_glue_is_told_the_catalog(operation: str, request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sent(IN_ANOTHER_REGION.client("glue"), operation, request_) == expected


def test_a_page_of_tables_after_the_first_is_of_the_same_catalog() -> None:
    request = {"DatabaseName": "shop", "NextToken": "2"}

    assert sent(IN_ANOTHER_REGION.client("glue"), "get_tables", request) == {**request, "CatalogId": OURS}


SHOP = {"Database": {"Name": "shop"}}
OUR_SHOP = {"Database": {"Name": "shop", "CatalogId": OURS}}


@pytest.mark.parametrize(
    ("operation", "request_", "expected"),
    [
        ("get_data_lake_settings", {}, {"CatalogId": OURS}),
        (
            "add_lf_tags_to_resource",
            {"Resource": SHOP, "LFTags": [{"TagKey": "pii", "TagValues": ["no"]}]},
            {
                "CatalogId": OURS,
                "Resource": OUR_SHOP,
                "LFTags": [{"CatalogId": OURS, "TagKey": "pii", "TagValues": ["no"]}],
            },
        ),
        (
            "batch_grant_permissions",
            {"Entries": [{"Id": "1", "Resource": SHOP}, {"Id": "2", "Resource": {"Catalog": {}}}]},
            {
                "CatalogId": OURS,
                "Entries": [{"Id": "1", "Resource": OUR_SHOP}, {"Id": "2", "Resource": {"Catalog": {"Id": OURS}}}],
            },
        ),
        (
            "list_permissions",
            {"Resource": {"TableWithColumns": {"DatabaseName": "shop", "Name": "t", "CatalogId": THEIRS}}},
            {
                "CatalogId": OURS,
                "Resource": {"TableWithColumns": {"DatabaseName": "shop", "Name": "t", "CatalogId": THEIRS}},
            },
        ),
        (
            "get_data_cells_filter",
            {"TableCatalogId": THEIRS, "DatabaseName": "d", "TableName": "t", "Name": "n"},
            {"TableCatalogId": THEIRS, "DatabaseName": "d", "TableName": "t", "Name": "n"},
        ),
        # A registered location belongs to no catalog.
        ("describe_resource", {"ResourceArn": "arn:aws:s3:::lake"}, {"ResourceArn": "arn:aws:s3:::lake"}),
    ],
)
def test_lake_formation_is_told_the_catalog_in_every_resource(
    operation: str, request_: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert sent(IN_ANOTHER_REGION.client("lakeformation"), operation, request_) == expected


def test_the_caller_s_structures_are_not_changed() -> None:
    resource = {"Database": {"Name": "shop"}}

    sent(IN_ANOTHER_REGION.client("lakeformation"), "get_resource_lf_tags", {"Resource": resource})

    assert resource == {"Database": {"Name": "shop"}}


@pytest.mark.parametrize(("service", "operation"), [("glue", "get_databases"), ("lakeformation", "list_lf_tags")])
def test_without_a_configured_catalog_none_is_named(service: Any, operation: str) -> None:
    access = AwsAccess("eu-west-1", AccessKeys("AKIA", "s"), "http://localhost:1")

    assert sent(access.client(service), operation, {}) == {}


def test_every_operation_of_glue_and_lake_formation_that_can_name_a_catalog_does() -> None:
    session = Session()
    name_catalog(session, OURS)
    events = session.get_component("event_emitter")

    for service in ("glue", "lakeformation"):
        model = session.get_service_model(service)
        for operation in map(model.operation_model, model.operation_names):
            params: dict[str, Any] = {}
            event = f"before-parameter-build.{service}.{operation.name}"
            events.emit(event, params=params, model=operation, context={})
            can = operation.input_shape is not None and "CatalogId" in operation.input_shape.members
            assert (params.get("CatalogId") == OURS) is can, operation.name


def test_libraries_own_clients_of_glue_have_its_region_and_name_the_catalog() -> None:
    client = IN_ANOTHER_REGION.session().client("glue", endpoint_url="http://localhost:1")

    assert client.meta.region_name == "eu-central-1"
    assert sent(client, "get_databases", {}) == {"CatalogId": OURS}


@pytest.mark.parametrize(
    ("service", "region"),
    [("glue", "eu-central-1"), ("lakeformation", "eu-central-1"), ("s3", "eu-west-1"), ("sts", "eu-west-1")],
)
def test_the_catalog_s_region_is_that_of_glue_and_lake_formation_only(service: Any, region: str) -> None:
    assert IN_ANOTHER_REGION.client(service).meta.region_name == region


def test_the_catalog_is_in_the_bucket_s_region_unless_configured() -> None:
    access = AwsAccess("eu-west-1", AccessKeys("AKIA", "s"), "http://localhost:1")

    assert access.client("glue").meta.region_name == access.client("lakeformation").meta.region_name == "eu-west-1"
