"""A client of a REST catalog: whose certificates it trusts, and what it says of a server that is no catalog."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.catalog import RestCatalogOptions
from destination_datalake.errors import ConnectorError
from destination_datalake.tables.rest.client import CertainRestCatalog
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
        ("<html>", 200, "config_error", "what answers there is none"),
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
