"""Who may ask a catalog, and how its clients come to a table's objects."""

import base64
import binascii
import json
import re
import secrets
import time
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from emulated_aws.account import Account, allow, policy
from emulated_aws.controls import end_sessions
from emulated_aws.server import REGION

from integration_tests.catalogs.behaviour import OAuth, SigV4
from integration_tests.catalogs.refusal import Refused
from integration_tests.harness.loopback import Answer, Request

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w+)/\d{8}/([\w-]+)/([\w-]+)/aws4_request, SignedHeaders=([\w;-]+), Signature=(\w+)"
)


class Tokens:
    """The access tokens of a catalog with OAuth."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._ends: dict[str, float] = {}

    def issue(self, request: Request) -> Answer:
        """Answer a request for a token (RFC 6749, 4.4.2): the client's credentials stand in its form or header."""
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        client = (form.get("client_id", ""), form.get("client_secret", ""))
        kind, _, encoded = request.header("Authorization").partition(" ")
        if kind == "Basic":
            try:
                name, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return _oauth_error(400, "invalid_request")
            client = (name, secret)
        if form.get("grant_type") != "client_credentials":
            return _oauth_error(400, "unsupported_grant_type")
        if client != (self._oauth.client_id, self._oauth.client_secret):
            return _oauth_error(401, "invalid_client")
        if form.get("scope") != self._oauth.scope:
            return _oauth_error(400, "invalid_scope")
        token = secrets.token_urlsafe(32)
        self._ends[token] = time.monotonic() + self._oauth.lifetime_seconds
        issued = {"access_token": token, "token_type": "bearer", "expires_in": self._oauth.lifetime_seconds}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(issued).encode())

    def end(self) -> None:
        """Let all tokens be expired that have been issued."""
        self._ends = dict.fromkeys(self._ends, 0)

    def check(self, request: Request) -> None:
        """Raise Refused if the request has no token, or one that is not valid."""
        kind, _, token = request.header("Authorization").partition(" ")
        if kind != "Bearer" or token not in self._ends:
            raise Refused(401, "NotAuthorizedException", "Not authorized: no token of this catalog's")
        if self._ends[token] <= time.monotonic():
            kind = "AuthenticationTimeoutException" if self._oauth.refusal == 419 else "NotAuthorizedException"
            raise Refused(self._oauth.refusal, kind, "Credentials have timed out")


def _oauth_error(status: int, error: str) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps({"error": error}).encode())


def check_signature(request: Request, url: str, expected: SigV4) -> None:
    """Raise Refused if AWS would not take a request's signature for a service's of a region."""
    header = _AUTHORIZATION.fullmatch(request.header("Authorization"))
    if header is None:
        raise _forbidden("Missing Authentication Token")
    key, region, service, signed, signature = header.groups()
    if (region, service) != (expected.region, expected.service):
        raise _forbidden(f"Credential should be scoped to {expected.service} in {expected.region}, not {header[0]}")
    if key.startswith("ASIA"):
        if not request.header("X-Amz-Security-Token"):
            raise _forbidden("The security token included in the request is invalid")
        return
    if key not in expected.secrets:
        raise _forbidden("The security token included in the request is invalid")
    split = urlsplit(url)
    rebuilt = AWSRequest(
        method=request.method,
        url=f"{split.scheme}://{split.netloc}{split.path}",
        params={name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()},
        data=request.body,
        headers={name: request.header(name) for name in signed.split(";")},
    )
    rebuilt.context["timestamp"] = request.header("X-Amz-Date")
    signer = SigV4Auth(Credentials(key, expected.secrets[key]), service, region)
    if signer.signature(signer.string_to_sign(rebuilt, signer.canonical_request(rebuilt)), rebuilt) != signature:
        raise _forbidden("The request signature we calculated does not match the signature you provided")


def _forbidden(message: str) -> Refused:
    return Refused(403, "ForbiddenException", message)


class Vendor:
    """Hands out sessions of a role of the catalog's that may read and write below one location, and nothing else."""

    def __init__(self, endpoint_url: str) -> None:
        self._account = Account(endpoint_url)
        self._role = self._account.role(allow("s3:*"))
        self.issued: list[str] = []
        """The ids of the access keys of all sessions, in order."""

    def vend(self, location: str) -> Mapping[str, str]:
        """Return the properties of a client's FileIO for a location (`LoadTableResult`: AWS configurations)."""
        arn = f"arn:aws:s3:::{location.removeprefix('s3://').rstrip('/')}"
        session = self._account.client("sts").assume_role(
            RoleArn=self._role.arn,
            RoleSessionName="catalog",
            Policy=policy(allow("s3:*", resource=[arn, f"{arn}/*"])),
        )["Credentials"]
        self.issued.append(session["AccessKeyId"])
        return {
            "s3.access-key-id": session["AccessKeyId"],
            "s3.secret-access-key": session["SecretAccessKey"],
            "s3.session-token": session["SessionToken"],
            "s3.session-token-expires-at-ms": str(int(session["Expiration"].timestamp() * 1000)),
            "client.region": REGION,
        }

    def end(self) -> None:
        """Let AWS refuse all sessions that have been handed out."""
        end_sessions(self._account.endpoint_url, self.issued)
