"""What AWS says when it does not do, or does not answer, what it was asked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from urllib.parse import parse_qs, urlsplit

from integration_tests.harness.loopback import Answer, Request

LOSABLE = frozenset({"CreateTable", "UpdateTable", "PutObject", "CompleteMultipartUpload", "UploadPart"})
"""Operations after which it matters whether they took place."""

CHANGES = LOSABLE | {
    "AbortMultipartUpload",
    "CopyObject",
    "CreateDatabase",
    "CreateMultipartUpload",
    "CreatePartition",
    "BatchCreatePartition",
    "BatchDeletePartition",
    "BatchUpdatePartition",
    "DeleteObject",
    "DeleteObjects",
}
"""Operations that change something."""

COUNTED: Mapping[str, frozenset[str]] = {
    "changes": CHANGES,
    "uploads": frozenset({"CreateMultipartUpload", "PutObject", "UploadPart"}),
}

_S3: Mapping[tuple[str, str], str] = {
    ("PUT", "partNumber"): "UploadPart",
    ("POST", "uploads"): "CreateMultipartUpload",
    ("POST", "uploadId"): "CompleteMultipartUpload",
    ("POST", "delete"): "DeleteObjects",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
    ("GET", "list-type"): "ListObjectsV2",
}
_S3_OBJECT: Mapping[str, str] = {
    "PUT": "PutObject",
    "GET": "GetObject",
    "HEAD": "HeadObject",
    "DELETE": "DeleteObject",
}


_CATALOG: Mapping[re.Pattern[str], str] = {
    re.compile(".*/namespaces"): "CreateDatabase",
    re.compile(".*/tables"): "CreateTable",
    re.compile(".*/tables/[^/]+"): "UpdateTable",
}
"""What a REST catalog's POST is to Glue, by its path."""


def _is_of_catalog(request: Request) -> bool:
    return request.path.startswith("/iceberg/")


def operation(request: Request) -> str:
    """Return the operation of a request, by AWS's name of it."""
    if request.operation:
        return request.operation
    if _is_of_catalog(request):
        name = next((name for pattern, name in _CATALOG.items() if pattern.fullmatch(request.path)), "")
        return name if request.method == "POST" else f"{request.method} of a catalog"
    if b"Action=AssumeRole" in request.body[:4096]:
        return "AssumeRole"
    query = parse_qs(urlsplit(request.path).query, keep_blank_values=True)
    for (method, key), name in _S3.items():
        if request.method == method and key in query:
            return name
    if request.method == "PUT" and request.header("x-amz-copy-source"):
        return "CopyObject"
    return _S3_OBJECT.get(request.method, request.method)


@dataclass(frozen=True)
class Refusal:
    """An error as S3 says it and as Glue says it: statuses, codes and words are AWS's own. REST catalogs say S3's."""

    s3: tuple[int, str, str]
    glue: tuple[int, str, str]

    def answer(self, request: Request) -> Answer:
        if request.operation:
            status, code, message = self.glue
            return Answer(status, _JSON, f'{{"__type":"{code}","message":"{message}"}}'.encode())
        status, code, message = self.s3
        if _is_of_catalog(request):
            body = f'{{"error":{{"message":"{message}","type":"{code}","code":{status}}}}}'
            return Answer(status, {"Content-Type": "application/json"}, body.encode())
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
        return Answer(status, _XML, body.encode())


_JSON = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": "0aa4"}
_XML = {"Content-Type": "application/xml", "x-amz-request-id": "0AA4"}

REFUSALS: Mapping[str, Refusal] = {
    "503": Refusal(
        (503, "SlowDown", "Please reduce your request rate."),
        (503, "ServiceUnavailableException", "The service is temporarily unavailable"),
    ),
    "500": Refusal(
        (500, "InternalError", "We encountered an internal error. Please try again."),
        (500, "InternalServiceException", "Internal service error"),
    ),
    "429": Refusal(
        (429, "TooManyRequests", "Too many requests"),
        (400, "ThrottlingException", "Rate exceeded"),
    ),
    "403": Refusal(
        (403, "AccessDenied", "Access Denied"),
        (400, "AccessDeniedException", "User is not authorized to perform this action"),
    ),
    "expired token": Refusal(
        (400, "ExpiredToken", "The provided token has expired."),
        (400, "ExpiredTokenException", "The security token included in the request is expired"),
    ),
}
"""What is answered instead of doing it, by the name of the fault."""

PASSING = ("503", "500", "429", "connection reset", "lost answer", "slow answer")
"""Faults that go away by themselves."""

LASTING = ("403", "expired token")
"""Faults that stay as long as the attempt does."""


@dataclass(frozen=True)
class Fault:
    """From the `first`-th request (from 1) of those it is about on, `times` requests meet it."""

    kind: str
    first: int
    times: int

    def concerns(self, name: str) -> bool:
        """Whether an operation is of those that this kind of fault is counted by."""
        if self.kind == "lost answer":
            return name in LOSABLE
        return self.kind in LASTING or name in CHANGES or self.first % 3 == 0

    def __str__(self) -> str:
        return f"{self.kind} from request {self.first} on, {self.times} times"


def draw(random: Random) -> list[Fault]:
    """Return what an attempt is to meet: something that lasts, or some things that pass."""
    if random.random() < 0.2:
        return [Fault(random.choice(LASTING), random.randint(1, 25), 1_000_000)]
    return [
        Fault(random.choice(PASSING), random.randint(1, 12), random.choice((1, 1, 2, 3)))
        for _ in range(random.randint(1, 4))
    ]
