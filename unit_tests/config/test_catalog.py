"""Options of the catalog: what contradicts what, what is secret, and what a client of it is configured with."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.config.services import GlueRestCatalogOptions, RestCatalogOptions, S3TablesCatalogOptions
from destination_datalake.tables.rest.catalog import rest_options
from destination_datalake.tables.rest.client import client_properties
from unit_tests.config.examples import options, refusal

URI = "https://polaris.example.com/api/catalog"
REST: dict[str, Any] = {"type": "rest", "uri": URI}
S3_TABLES: dict[str, Any] = {
    "type": "s3_tables",
    "table_bucket_arn": "arn:aws:s3tables:eu-west-1:123456789012:bucket/lake",
}
FEDERATED: dict[str, Any] = {"type": "glue_rest", "warehouse": "123456789012:s3tablescatalog/lake"}


def parsed(**catalog: Any) -> Config:
    return Config.parse(options(table_type="ICEBERG", format={"format_type": "Parquet"}, catalog={**REST, **catalog}))


def test_tables_are_in_glue_unless_something_else_is_said() -> None:
    assert Config.parse(options()).catalog == Config.parse(options(catalog={"type": "glue"})).catalog


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"catalog": {"type": "hive"}},
            "catalog is not valid. It must be an object whose type is glue, rest, glue_rest or s3_tables.",
        ),
        ({"catalog": {"type": "rest"}}, "catalog.uri is missing. It must be the URI of the catalog"),
        ({"catalog": {**REST, "uri": "https://me:secret@lake"}}, "catalog.uri is not valid."),
        ({"catalog": {**REST, "client_secret": "s"}}, "catalog.client_secret requires catalog.client_id."),
        ({"catalog": {**REST, "client_id": "c"}}, "catalog.client_id requires catalog.client_secret."),
        (
            {"catalog": {**REST, "client_id": "c", "client_secret": "s", "token": "t"}},
            "catalog.client_secret and catalog.token are alternative authentication methods.",
        ),
        ({"catalog": {**REST, "signing_region": "eu-west-1"}}, "catalog.signing_region requires catalog.signing_name."),
        ({"catalog": REST, "table_type": "HIVE"}, "table_type HIVE requires catalog.type glue"),
        ({"catalog": REST, "lake_formation": {"mode": "managed"}}, "lake_formation requires catalog.type glue"),
        ({"catalog": REST, "glue_region": "eu-west-1"}, "glue_region requires catalog.type glue"),
        (
            {"catalog": REST, "maintenance": {"mode": "glue", "role_arn": "arn:aws:iam::123456789012:role/glue"}},
            "maintenance.mode glue requires catalog.type glue",
        ),
        ({"catalog": {"type": "glue_rest", "warehouse": "lake"}}, "catalog.warehouse is not valid."),
        ({"catalog": {"type": "glue_rest"}, "table_type": "HIVE"}, "table_type HIVE requires catalog.type glue"),
        ({"catalog": {"type": "s3_tables"}}, "catalog.table_bucket_arn is missing."),
        (
            {"catalog": S3_TABLES, "region": "us-east-1"},
            "The table bucket in catalog.table_bucket_arn is in region eu-west-1",
        ),
        ({"catalog": S3_TABLES, "glue_region": "eu-west-1"}, "glue_region requires catalog.type glue"),
        ({"catalog": S3_TABLES, "lakeformation_database_name": "raw-1"}, "raw-1 is not a valid name"),
        ({"catalog": S3_TABLES, "lakeformation_database_name": "aws_raw"}, "aws_raw is not a valid name"),
        (
            {"catalog": S3_TABLES, "maintenance": {"mode": "connector"}},
            "which Amazon S3 Tables manages. Remove maintenance.mode connector.",
        ),
        (
            {"catalog": FEDERATED, "maintenance": {"mode": "connector"}},
            "which Amazon S3 Tables manages. Remove maintenance.mode connector.",
        ),
        (
            {"catalog": S3_TABLES, "encryption": {"encryption_type": "SSE-S3"}},
            "encryption does not apply to table buckets, which Amazon S3 Tables manages.",
        ),
        (
            {"catalog": {**FEDERATED, "vended_credentials": True}, "spark": {"master": "yarn"}},
            "catalog.vended_credentials requires spark.mode local",
        ),
        (
            {"catalog": REST, "spark": {"master": "yarn"}},
            "catalog.vended_credentials requires spark.mode local",
        ),
    ],
)
def test_what_a_catalog_cannot_do_is_refused(given: dict[str, Any], words: str) -> None:
    plain = {"table_type": "ICEBERG", "format": {"format_type": "Parquet"}}

    assert words in refusal(options(**{**plain, **given}))


@pytest.mark.parametrize(
    "given",
    [
        {"catalog": {"type": "glue_rest"}, "glue_region": "eu-west-1", "glue_catalog_id": "210987654321"},
        {"catalog": {"type": "glue_rest"}, "maintenance": {"mode": "connector"}},
        {"catalog": FEDERATED},
        {"catalog": S3_TABLES, "spark": {"master": "yarn"}},
    ],
    ids=str,
)
def test_what_a_service_takes_is_accepted(given: dict[str, Any]) -> None:
    plain = {"table_type": "ICEBERG", "format": {"format_type": "Parquet"}}

    assert Config.parse(options(**{**plain, **given})).catalog.type == given["catalog"]["type"]


@pytest.mark.parametrize(
    ("region", "expected"),
    [("eu-west-1", "https://s3tables.eu-west-1.amazonaws.com/iceberg"), ("cn-north-1", "amazonaws.com.cn/iceberg")],
)
def test_a_service_is_asked_at_its_region_s_endpoint(region: str, expected: str) -> None:
    bucket = f"arn:aws:s3tables:{region}:123456789012:bucket/lake"

    asked = rest_options(S3TablesCatalogOptions(type="s3_tables", table_bucket_arn=bucket), AwsAccess(region))

    assert asked.uri.endswith(expected)
    assert (asked.warehouse, asked.signing_name, asked.signing_region) == (bucket, "s3tables", None)


def test_glue_s_own_endpoint_is_asked_for_the_data_catalog_that_the_options_name() -> None:
    access = AwsAccess("eu-west-1", glue_region="us-east-1", glue_catalog_id="210987654321")

    asked = rest_options(GlueRestCatalogOptions(type="glue_rest"), access)

    assert asked.uri == "https://glue.us-east-1.amazonaws.com/iceberg"
    assert (asked.warehouse, asked.signing_name, asked.signing_region) == ("210987654321", "glue", "us-east-1")


def test_what_the_catalog_knows_the_connector_by_is_secret() -> None:
    config = parsed(client_id="airbyte", client_secret="s3cr3t")

    assert "s3cr3t" in config.secrets()
    assert "s3cr3t" not in repr(config)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"auth": {"type": "noop"}}),
        (
            {"client_id": "a", "client_secret": "b:c", "scope": "PRINCIPAL_ROLE:ALL"},
            {"credential": "a:b:c", "scope": "PRINCIPAL_ROLE:ALL", "oauth2-server-uri": f"{URI}/v1/oauth/tokens"},
        ),
        (
            {"client_id": "a", "client_secret": "b", "oauth2_server_uri": "https://login/token"},
            {"credential": "a:b", "scope": "catalog", "oauth2-server-uri": "https://login/token"},
        ),
        ({"token": "t"}, {"token": "t", "oauth2-server-uri": URI}),
        ({"warehouse": "lake", "realm": "R"}, {"warehouse": "lake", "header.Polaris-Realm": "R"}),
        ({"vended_credentials": False}, {"header.X-Iceberg-Access-Delegation": ""}),
    ],
)
def test_a_client_is_configured_as_the_options_say(given: dict[str, Any], expected: dict[str, Any]) -> None:
    catalog = parsed(**given).catalog
    assert isinstance(catalog, RestCatalogOptions)

    properties = client_properties(catalog)

    assert properties["uri"] == URI
    assert expected.items() <= properties.items()
