"""A client of a REST catalog: which certificates and hosts it trusts, and how it explains what is no catalog."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr
from pyiceberg.catalog.rest.auth import NoopAuthManager
from pyiceberg.catalog.rest.scan_planning import StorageCredential

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.services import RestCatalogOptions
from destination_datalake.errors import ConnectorError
from destination_datalake.tables.rest import client
from destination_datalake.tables.rest.client import CertainRestCatalog, VendedAccess
from integration_tests.harness.loopback import Answer, LoopbackServer, Request
from unit_tests.certificates import certificate

CONFIG = json.dumps({"defaults": {}, "overrides": {}})


@contextmanager
def server(body: str, status: int = 200, certificate: Path | None = None) -> Iterator[str]:
    """Serve one answer to every request; the value is the URI."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    http = HTTPServer(("localhost", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        http.socket = context.wrap_socket(http.socket, server_side=True)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http{'s' if certificate is not None else ''}://localhost:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def connect(uri: str, ca_certificates: str | None = None) -> CertainRestCatalog:
    options = RestCatalogOptions(type="rest", uri=uri, ca_certificates=ca_certificates)
    return CertainRestCatalog(options, AwsAccess("eu-west-1"))


def test_a_certificate_of_the_user_s_authority_is_trusted_and_no_other(tmp_path: Path) -> None:
    made = certificate()
    file = tmp_path / "localhost.pem"
    file.write_bytes(made.key + made.certificate)
    with server(CONFIG, certificate=file) as uri:
        connect(uri, ca_certificates=made.certificate.decode())

        with pytest.raises(ConnectorError, match="not trusted") as refused:
            connect(uri)

    assert refused.value.failure.type == "config_error"
    assert "catalog.ca_certificates" in refused.value.failure.message


@pytest.mark.parametrize(
    ("body", "status", "type_", "words"),
    [
        ("<html>", 200, "config_error", "did not respond as an Iceberg catalog"),
        ("<html>", 404, "config_error", "Check catalog.uri"),
        ("", 401, "config_error", "catalog.client_secret"),
        ("", 403, "config_error", "right to create"),
        ("", 500, "transient_error", "Run the sync again"),
    ],
)
def test_what_a_server_answers_is_explained(body: str, status: int, type_: str, words: str) -> None:
    with server(body, status) as uri, pytest.raises(ConnectorError) as refused:
        connect(uri)

    assert refused.value.failure.type == type_
    assert uri in refused.value.failure.message
    assert words in refused.value.failure.message


def test_a_server_that_is_down_is_explained_without_python_s_text() -> None:
    with server(CONFIG) as uri:
        pass
    with pytest.raises(ConnectorError, match="did not respond") as refused:
        connect(uri)

    failure = refused.value.failure
    assert failure.type == "transient_error"
    assert failure.message == (
        f"The Iceberg catalog at {uri} did not respond. Check catalog.uri. Check that the server is running and that "
        "this machine can reach the server. Then try again."
    )
    assert "Connection refused" in failure.detail


# --- a server that means harm -----------------------------------------------------------------------------------------


class Hostile(LoopbackServer):
    """Answers requests with a configuration or a token, or with a redirect, and keeps them."""

    def __init__(self, config: dict[str, Any] | None = None, redirect: str | None = None) -> None:
        self.config = {"defaults": {}, "overrides": {}, **(config or {})}
        self.redirect = redirect
        self.requests: list[Request] = []

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.redirect is not None:
            return Answer(307, {"Location": self.redirect}, b"")
        is_config = request.path.startswith("/v1/config")
        body = self.config if is_config else {"access_token": "t0ken", "token_type": "bearer", "namespaces": []}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())


class Planted(NoopAuthManager):
    """What a server names as the class that authenticates the client."""

    instances = 0

    def __init__(self, **_: object) -> None:
        Planted.instances += 1


CLIENT = {"client_id": "us", "client_secret": SecretStr("s3cr3t/9876")}


def login(uri: str, **way: Any) -> CertainRestCatalog:
    return CertainRestCatalog(RestCatalogOptions(type="rest", uri=uri, **way), AwsAccess("eu-west-1"))


@pytest.mark.parametrize("where", ["defaults", "overrides"])
@pytest.mark.parametrize("way", [CLIENT, {"token": SecretStr("t0ken/9876")}, {}], ids=["client", "token", "nobody"])
def test_a_server_names_no_code_no_token_endpoint_no_header_and_no_file(where: str, way: dict[str, Any]) -> None:
    with Hostile() as other_host, Hostile() as catalog:
        named = {
            "auth": {"type": "custom", "impl": f"{__name__}.Planted", "custom": {"args": "touch"}},
            "py-io-impl": f"{__name__}.Planted",
            "oauth2-server-uri": f"{other_host.endpoint_url}/v1/oauth/tokens",
            "credential": "them:theirs",
            "token": "theirs",
            "header.Authorization": "theirs",
            "rest.sigv4-enabled": "true",
            "ssl": {"cabundle": "/etc/shadow"},
            "namespace-separator": {},
            "prefix": "theirs",
        }
        catalog.config[where] = named
        list(login(catalog.endpoint_url, **way).namespaces())

    assert Planted.instances == 0
    assert other_host.requests == []
    *_, last = catalog.requests
    assert last.path == "/v1/theirs/namespaces"
    expected = {"client_id": "Bearer t0ken", "token": "Bearer t0ken/9876"}
    assert last.header("Authorization") == next((expected[key] for key in way if key in expected), "")


@pytest.mark.parametrize("path", ["", "/catalog/"])
def test_a_server_may_name_another_path_of_its_own(path: str) -> None:
    with Hostile() as catalog:
        catalog.config["overrides"] = {"uri": catalog.endpoint_url + path}
        list(login(catalog.endpoint_url, **CLIENT).namespaces())

    assert catalog.requests[-1].path == f"{path.rstrip('/')}/v1/namespaces"


@pytest.mark.parametrize(
    "how",
    ["uri", "uri that parsers disagree about", "uri that is none", "redirect", "redirect of a token's request"],
)
def test_no_request_goes_to_another_host_that_a_server_names(how: str) -> None:
    with Hostile() as other_host, Hostile() as catalog, Hostile() as issuer:
        way: dict[str, Any] = {"token": SecretStr("t0ken/9876")}
        if how == "uri":
            catalog.config["overrides"] = {"uri": other_host.endpoint_url}
        elif how == "uri that parsers disagree about":
            own = catalog.endpoint_url.removeprefix("http://")
            catalog.config["overrides"] = {"uri": f"{other_host.endpoint_url}\\@{own}"}
        elif how == "uri that is none":
            catalog.config["overrides"] = {"uri": f"{other_host.endpoint_url}[:x"}
        elif how == "redirect":
            catalog.redirect = f"{other_host.endpoint_url}/v1/config"
        else:
            issuer.redirect = f"{other_host.endpoint_url}/tokens?client_secret=x"
            way = {**CLIENT, "oauth2_server_uri": f"{issuer.endpoint_url}/tokens"}
        with pytest.raises(ConnectorError, match="another server") as refused:
            login(catalog.endpoint_url, **way)

    assert other_host.requests == []
    assert refused.value.failure.type == "config_error"
    assert other_host.endpoint_url in refused.value.failure.message


class Issuing(Hostile):
    """Issues tokens, the first of which has expired, and quotes the tokens when it refuses a request."""

    tokens: ClassVar[Sequence[str]] = ("issued/1+first", "issued/2+second")

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        issued = [past for past in self.requests if past.path.endswith("/tokens")]
        if request.path.endswith("/tokens"):
            body: dict[str, Any] = {"access_token": self.tokens[len(issued) - 1], "token_type": "bearer"}
            return Answer(200, {}, json.dumps({**body, "refresh_token": "issued/refresh"}).encode())
        if request.path.startswith("/v1/config"):
            return Answer(200, {}, json.dumps(self.config).encode())
        quoted = f"{request.header('Authorization')} {' '.join(self.tokens)} issued/refresh"
        kind, status = ("AuthorizationExpiredException", 419) if len(issued) == 1 else ("ForbiddenException", 403)
        error = {"message": f"Refused: {quoted}", "type": kind, "code": status}
        return Answer(status, {}, json.dumps({"error": error}).encode())


def test_issued_tokens_are_masked_in_messages() -> None:
    with Issuing() as catalog, pytest.raises(ConnectorError) as refused:
        list(login(catalog.endpoint_url, **CLIENT).namespaces())

    assert sum(request.path.endswith("/tokens") for request in catalog.requests) == 2
    failure = refused.value.failure
    assert "Refused: Bearer **** **** **** ****" in failure.message
    assert "issued/" not in failure.message + failure.detail


@pytest.mark.parametrize("answer", ['{"access_token": "issued/1+first"}', '{"access_token": "issued/1+first"'])
def test_invalid_response_with_token_is_not_quoted(answer: str) -> None:
    class Incomplete(Hostile):
        def answer(self, request: Request) -> Answer:  # noqa: ARG002
            return Answer(200, {}, answer.encode())

    with (
        Incomplete() as catalog,
        pytest.raises(ConnectorError, match="did not respond as an Iceberg catalog") as refused,
    ):
        login(catalog.endpoint_url, **CLIENT)

    assert "issued" not in refused.value.failure.message + refused.value.failure.detail


def test_a_redirect_to_a_path_of_the_same_server_is_followed() -> None:
    with Hostile() as catalog:
        catalog.redirect = f"{catalog.endpoint_url}/v1/config"
        answer, catalog.answer = catalog.answer, lambda request: _once(request)  # type: ignore[method-assign]

        def _once(request: Request) -> Answer:
            response = answer(request)
            catalog.redirect = None
            return response

        login(catalog.endpoint_url)

    assert len(catalog.requests) == 2


def test_an_answer_that_unpacks_to_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1_000_000)

    class Bomb(Hostile):
        def answer(self, request: Request) -> Answer:  # noqa: ARG002
            return Answer(200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(1_000_001)))

    with Bomb() as catalog, pytest.raises(ConnectorError, match="exceeds the limit of 1,000,000 bytes"):
        login(catalog.endpoint_url)


LENT = {"s3.access-key-id": "ASIA1", "s3.secret-access-key": "s3cr3t", "s3.session-token": "t0ken"}


@pytest.mark.parametrize(
    ("own", "named", "used"),
    [
        (None, None, None),
        (None, "https://s3.eu-west-1.amazonaws.com", "https://s3.eu-west-1.amazonaws.com"),
        ("http://minio:9000", "http://minio:9000/", "http://minio:9000"),
        ("http://minio:9000", "https://s3.eu-west-1.amazonaws.com", "http://minio:9000"),
        (None, "http://s3.eu-west-1.amazonaws.com", ConnectorError),
        (None, "https://amazonaws.com.example.com", ConnectorError),
        ("http://minio:9000", "http://169.254.169.254", ConnectorError),
    ],
)
def test_files_go_to_the_configured_endpoint_or_to_aws(own: str | None, named: str | None, used: Any) -> None:
    access = AwsAccess("eu-west-1", endpoint_url=own)
    credentials = [StorageCredential(prefix="s3://lake/", config={**LENT, **({"s3.endpoint": named} if named else {})})]
    if used is ConnectorError:
        with pytest.raises(ConnectorError, match="set endpoint_url"):
            VendedAccess.from_response({}, credentials, "s3://lake/orders", access)
        return
    lent = VendedAccess.from_response({"py-io-impl": "subprocess.Popen"}, credentials, "s3://lake/orders", access)

    assert lent is not None
    assert lent.access.endpoint_url == used
