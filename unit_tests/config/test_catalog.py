"""Options of the catalog: what contradicts what, what is secret, and what a client of it is configured with."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.catalog import RestCatalogOptions
from destination_datalake.config.options import Config
from destination_datalake.tables.rest.client import client_properties
from unit_tests.config.examples import options, refusal

URI = "https://polaris.example.com/api/catalog"
REST: dict[str, Any] = {"type": "rest", "uri": URI}


def parsed(**catalog: Any) -> Config:
    return Config.parse(options(table_type="ICEBERG", format={"format_type": "Parquet"}, catalog={**REST, **catalog}))


def test_tables_are_in_glue_unless_something_else_is_said() -> None:
    assert Config.parse(options()).catalog == Config.parse(options(catalog={"type": "glue"})).catalog


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"catalog": {"type": "hive"}}, "catalog is not valid. It must be an object whose type is glue or rest."),
        ({"catalog": {"type": "rest"}}, "catalog.uri is missing. It must be the address of the catalog"),
        ({"catalog": {**REST, "uri": "https://me:secret@lake"}}, "catalog.uri is not valid."),
        ({"catalog": {**REST, "client_secret": "s"}}, "catalog.client_secret is of a client whose catalog.client_id"),
        ({"catalog": {**REST, "client_id": "c"}}, "catalog.client_id is of a client whose catalog.client_secret"),
        (
            {"catalog": {**REST, "client_id": "c", "client_secret": "s", "token": "t"}},
            "catalog.client_secret and catalog.token each say how the catalog knows the connector.",
        ),
        ({"catalog": {**REST, "signing_region": "eu-west-1"}}, "catalog.signing_region is for signed requests."),
        ({"catalog": REST, "table_type": "HIVE"}, "table_type HIVE is for tables in Glue"),
        ({"catalog": REST, "lake_formation": {"mode": "managed"}}, "lake_formation is for tables in Glue"),
        ({"catalog": REST, "glue_region": "eu-west-1"}, "glue_region is for tables in Glue"),
        (
            {"catalog": REST, "maintenance": {"mode": "glue", "role_arn": "arn:aws:iam::123456789012:role/glue"}},
            "maintenance.mode glue is for tables in Glue",
        ),
        (
            {"catalog": REST, "spark": {"master": "yarn"}},
            "catalog.vended_credentials are for executors on this",
        ),
    ],
)
def test_what_a_catalog_cannot_do_is_refused(given: dict[str, Any], words: str) -> None:
    plain = {"table_type": "ICEBERG", "format": {"format_type": "Parquet"}}

    assert words in refusal(options(**{**plain, **given}))


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
