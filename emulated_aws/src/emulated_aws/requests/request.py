"""Parse a request to the server as AWS does: the signer, the operation and the operation's parameters."""

import html
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote

import msgspec

from emulated_aws.requests.s3_operations import s3_operation

Environ = dict[str, Any]
"""A WSGI environment (PEP 3333)."""


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """One call of an API operation. The names in `headers` are in lower case. `key` is a decoded S3 key."""

    service: str
    operation: str
    region: str
    access_key_id: str
    session_token: str
    headers: Mapping[str, str]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The members of a JSON or form body, or the query parameters of a request to S3. For DeleteObjects, the parameter
    `Keys` contains the keys."""
    bucket: str = ""
    key: str = ""
    sent_bytes: int = 0
    secure: bool = True
    """Whether the client used TLS. The server's HTTP stands for AWS's HTTPS, unless a test sets X-Forwarded-Proto."""

    def text(self, name: str) -> str:
        """Return a parameter that is a string, or "" if there is no such parameter."""
        value = self.parameters.get(name, "")
        return value if isinstance(value, str) else ""


def read_request(environ: Environ) -> AwsRequest:
    """Parse a request. The next layer can still read the request's body.

    Reads only bodies that contain parameters, and never the content of objects.
    """
    access_key_id, region, service = _signature(environ)
    headers = {
        name[5:].replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") and isinstance(value, str)
    }
    common: dict[str, Any] = {
        "region": region,
        "access_key_id": access_key_id,
        "session_token": headers.get("x-amz-security-token", ""),
        "headers": headers,
        "sent_bytes": int(environ.get("CONTENT_LENGTH") or 0),
        "secure": headers.get("x-forwarded-proto", "https") == "https",
    }
    target = headers.get("x-amz-target", "")
    if target:
        service = service or target.partition(".")[0].lower()
        return AwsRequest(service, target.rpartition(".")[2], **common, parameters=_json(_body(environ)))
    path = environ.get("PATH_INFO", "/").encode("latin-1").decode("utf-8", "replace")
    if service in ("", "s3"):
        query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
        bucket, _, key = path[1:].partition("/")
        operation = s3_operation(environ["REQUEST_METHOD"], bucket, key, query, headers)
        parameters: dict[str, Any] = dict(query)
        if operation == "DeleteObjects":
            parameters["Keys"] = _keys(_body(environ))
        return AwsRequest("s3", operation, **common, parameters=parameters, bucket=bucket, key=key)
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        form = {name: values[0] for name, values in parse_qs(_body(environ).decode()).items()}
        return AwsRequest(service, form.get("Action", ""), **common, parameters=form)
    # Lake Formation's operations are paths: POST /GrantPermissions (its model in botocore).
    return AwsRequest(service, path.strip("/"), **common, parameters=_json(_body(environ)))


def _signature(environ: Environ) -> tuple[str, str, str]:
    """Return the access key ID, the region and the service in the signature of a request.

    The signature is in a header or in a presigned URL:

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-authentication-methods.html
    """
    header = environ.get("HTTP_AUTHORIZATION", "")
    scope = _CREDENTIAL.search(header) or _PRESIGNED.search(environ.get("QUERY_STRING", ""))
    if scope is None:
        return "", "us-east-1", ""
    key, _, region, service, *_ = [*unquote(scope[1]).split("/"), "", "", "", ""]
    return key, region, service.lower()


_CREDENTIAL = re.compile(r"Credential=([^,\s]+)")
_PRESIGNED = re.compile(r"X-Amz-Credential=([^&]+)")


def _body(environ: Environ) -> bytes:
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        parameters = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError:
        return {}
    return parameters if isinstance(parameters, dict) else {}


def _keys(body: bytes) -> list[str]:
    return [html.unescape(key) for key in _KEY.findall(body.decode("utf-8", "replace"))]


_KEY = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
