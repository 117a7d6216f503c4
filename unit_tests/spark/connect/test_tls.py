"""A server behind TLS, whose certificate is of an authority of the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grpc

from unit_tests.certificates import certificate
from unit_tests.spark.connect.server import Server

CLIENT = """
import sys
from destination_datalake.spark.connect.session import connect
url, token = sys.argv[1:]
session = connect(url, token or None, retry_seconds=0)
try:
    print(session.version)
except Exception as error:
    print("CERTIFICATE_VERIFY_FAILED" in str(error))
"""


def credentials(folder: Path) -> grpc.ServerCredentials:
    """Credentials of a server at localhost; its certificate, which vouches for itself, is put into the folder."""
    made = certificate()
    (folder / "authority.pem").write_bytes(made.certificate)
    return grpc.ssl_server_credentials([made])


def ask(url: str, token: str, roots: Path | None) -> str:
    """What a process of its own is answered: gRPC reads its authorities once."""
    environment = os.environ | ({"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots)} if roots else {})
    command = [sys.executable, "-c", CLIENT, url, token]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout


def test_a_server_with_a_certificate_of_the_user_s_authority_is_reached_with_a_token(tmp_path: Path) -> None:
    with Server(credentials=credentials(tmp_path)) as server:
        url = f"{server.url}/;use_ssl=true"

        assert ask(url, "open-sesame", tmp_path / "authority.pem") == "4.3.0\n"
        assert server.headers[0]["authorization"] == "Bearer open-sesame"


def test_a_server_with_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    with Server(credentials=credentials(tmp_path)) as server:
        assert ask(f"{server.url}/;use_ssl=true", "", None) == "True\n"
        assert server.calls == []
