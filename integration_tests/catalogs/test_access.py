"""Who may ask a catalog, and with whose keys a table's objects are reached."""

from typing import Literal, TypedDict

import boto3
import pytest
import requests
from botocore.exceptions import ClientError
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from pyiceberg.exceptions import ForbiddenError, OAuthError, UnauthorizedError
from pyiceberg.table import Table

from integration_tests.catalogs.behaviour import Behaviour, OAuth, SigV4
from integration_tests.catalogs.conftest import ROWS, Client, Serve, told
from integration_tests.catalogs.server import CatalogServer
from integration_tests.harness.lake import Lake

OAUTH = OAuth(scope="PRINCIPAL_ROLE:ALL", path="/identity/oauth2/token")


def credential(catalog: CatalogServer, **properties: str) -> dict[str, str]:
    """Return a client's properties for a catalog with OAuth, some of them replaced."""
    return {
        "credential": f"{OAUTH.client_id}:{OAUTH.client_secret}",
        "scope": OAUTH.scope,
        "oauth2-server-uri": f"{catalog.endpoint_url}{OAUTH.path}",
    } | properties


@pytest.mark.parametrize("refusal", [401, 419])
def test_a_client_has_a_new_token_when_its_own_has_expired(
    serve: Serve, lake: Lake, refusal: Literal[401, 419]
) -> None:
    catalog = serve(Behaviour(authorization=OAuth(scope=OAUTH.scope, path=OAUTH.path, refusal=refusal)))
    client = Client(catalog.endpoint_url, lake, **credential(catalog))
    table = client.new_table()
    issued = catalog.requests["getToken"]

    catalog.end_tokens()
    refused = told(requests.get(f"{catalog.endpoint_url}/v1/namespaces", headers=_bearer(client), timeout=10))
    table.append(ROWS)

    assert refused[0] == refusal
    assert catalog.requests["getToken"] == issued + 1
    assert client.load_table(table.name()).scan().to_arrow().num_rows == 2


def test_a_token_may_be_asked_for_with_a_header(serve: Serve) -> None:
    """As PyIceberg's other way of OAuth does (RFC 6749, 2.3.1)."""
    catalog = serve(Behaviour(authorization=OAUTH))

    answer = requests.post(
        f"{catalog.endpoint_url}{OAUTH.path}",
        data={"grant_type": "client_credentials", "scope": OAUTH.scope},
        auth=(OAUTH.client_id, OAUTH.client_secret),
        timeout=10,
    )

    assert (answer.status_code, answer.json()["expires_in"]) == (200, 3600)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"credential": "airbyte:guessed"}, "invalid_client"), ({"scope": "catalog"}, "invalid_scope")],
)
def test_a_client_with_other_credentials_has_no_token(
    serve: Serve, lake: Lake, wrong: dict[str, str], error: str
) -> None:
    catalog = serve(Behaviour(authorization=OAUTH))

    with pytest.raises(OAuthError, match=error):
        Client(catalog.endpoint_url, lake, **credential(catalog, **wrong))


def test_whoever_has_no_token_is_refused(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour(authorization=OAUTH))

    with pytest.raises(UnauthorizedError):
        Client(catalog.endpoint_url, lake)


def test_a_header_is_asked_for(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour(headers={"Polaris-Realm": "lake"}))

    with pytest.raises(UnauthorizedError, match="Polaris-Realm"):
        Client(catalog.endpoint_url, lake)
    Client(catalog.endpoint_url, lake, **{"header.Polaris-Realm": "lake"}).new_table()


def signed(service: str = "glue", secret: str = SECRET_ACCESS_KEY) -> dict[str, str]:
    """Return a client's properties for signing requests."""
    return {
        "rest.sigv4-enabled": "true",
        "rest.signing-name": service,
        "rest.signing-region": REGION,
        "client.access-key-id": ACCESS_KEY_ID,
        "client.secret-access-key": secret,
        "client.region": REGION,
    }


def test_a_signed_request_is_answered(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour(prefix="catalogs%2Fa", authorization=SigV4("glue")))
    client = Client(catalog.endpoint_url, lake, **signed())

    table = client.new_table()
    client.drop_table(table.name(), purge_requested=True)

    assert client.list_tables(table.name()[0]) == []


@pytest.mark.parametrize("wrong", [signed(service="s3tables"), signed(secret="guessed"), {}])
def test_a_request_with_another_signature_is_refused(serve: Serve, lake: Lake, wrong: dict[str, str]) -> None:
    catalog = serve(Behaviour(authorization=SigV4("glue")))

    with pytest.raises(ForbiddenError):
        Client(catalog.endpoint_url, lake, **wrong)


class Keys(TypedDict):
    aws_access_key_id: str
    aws_secret_access_key: str
    aws_session_token: str


VENDING = Behaviour(delegates="vended-credentials")


def vended(client: Client, table: Table) -> Keys:
    """Return the keys for a table's objects that the catalog hands out now, as boto3 takes them."""
    properties = client.load_credentials(table.name(), table.location())
    return {
        "aws_access_key_id": properties["s3.access-key-id"],
        "aws_secret_access_key": properties["s3.secret-access-key"],
        "aws_session_token": properties["s3.session-token"],
    }


def put(lake: Lake, keys: Keys, folder: str) -> None:
    """Write an object with these keys. Raises ClientError."""
    s3 = boto3.Session(region_name=REGION, **keys).client("s3", endpoint_url=lake.endpoint_url)
    s3.put_object(Bucket=lake.bucket, Key=f"{folder.removeprefix(f's3://{lake.bucket}/')}/object", Body=b"1")


def test_vended_credentials_reach_the_table_s_objects_alone(serve: Serve, lake: Lake) -> None:
    client = Client(serve(VENDING).endpoint_url, lake)
    table = client.new_table()
    table.append(ROWS)
    keys = vended(client, table)

    put(lake, keys, f"{table.location()}/data")
    with pytest.raises(ClientError, match="AccessDenied"):
        put(lake, keys, f"{table.location()}-2/data")


def test_vended_credentials_end_and_others_are_to_be_had(serve: Serve, lake: Lake) -> None:
    catalog = serve(VENDING)
    client = Client(catalog.endpoint_url, lake)
    table = client.new_table()
    first = vended(client, table)

    catalog.end_credentials()
    second = vended(client, table)

    with pytest.raises(ClientError, match="ExpiredToken"):
        put(lake, first, table.location())
    put(lake, second, table.location())
    assert catalog.requests["loadCredentials"] == 2
    assert catalog.vended[-1] == second["aws_access_key_id"]


def test_whoever_does_not_ask_for_credentials_has_none(serve: Serve, lake: Lake) -> None:
    catalog = serve(VENDING)
    table = Client(catalog.endpoint_url, lake).new_table()
    url = f"{catalog.endpoint_url}/v1/namespaces/{table.name()[0]}/tables/orders"

    assert "storage-credentials" not in requests.get(url, timeout=10).json()


def test_a_catalog_may_want_to_sign_the_requests_for_objects(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour(delegates="remote-signing"))
    client = Client(catalog.endpoint_url, lake)
    client.create_namespace(lake.name("shop"))

    table = client.create_table((lake.name("shop"), "orders"), ROWS.schema)

    assert table.config["s3.remote-signing-enabled"] == "true"
    assert table.config["s3.signer.uri"] == catalog.endpoint_url


def _bearer(client: Client) -> dict[str, str]:
    manager = client._auth_manager
    assert manager is not None
    return {"Authorization": manager.auth_header() or ""}
