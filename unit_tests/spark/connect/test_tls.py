"""A server behind TLS, whose certificate is of an authority of the user's own."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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


def certificate(folder: Path) -> grpc.ServerCredentials:
    """Credentials of a server at localhost; its certificate, which vouches for itself, is put into the folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoded = built.public_bytes(serialization.Encoding.PEM)
    (folder / "authority.pem").write_bytes(encoded)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return grpc.ssl_server_credentials([(secret, encoded)])


def ask(url: str, token: str, roots: Path | None) -> str:
    """What a process of its own is answered: gRPC reads its authorities once."""
    environment = os.environ | ({"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots)} if roots else {})
    command = [sys.executable, "-c", CLIENT, url, token]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout


def test_a_server_with_a_certificate_of_the_user_s_authority_is_reached_with_a_token(tmp_path: Path) -> None:
    with Server(credentials=certificate(tmp_path)) as server:
        url = f"{server.url}/;use_ssl=true"

        assert ask(url, "open-sesame", tmp_path / "authority.pem") == "4.3.0\n"
        assert server.headers[0]["authorization"] == "Bearer open-sesame"


def test_a_server_with_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    with Server(credentials=certificate(tmp_path)) as server:
        assert ask(f"{server.url}/;use_ssl=true", "", None) == "True\n"
        assert server.calls == []
