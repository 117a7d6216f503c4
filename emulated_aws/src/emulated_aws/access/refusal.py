"""Error responses to refused requests: the error code, the message, and the format of each protocol."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from emulated_aws.policies.policy import Decision
from emulated_aws.requests.needs import Need
from emulated_aws.requests.request import AwsRequest

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a request: the HTTP status, and the error code and message that this service uses."""

    status: int
    code: str
    message: str


def denied(request: AwsRequest, caller: str, need: Need, decision: Decision, kind: str) -> Refusal:
    """Return the refusal of a need by policies. `kind` is the kind of these policies, such as "identity-based".

    https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
    """
    # Only S3 quotes the resource. The message does not name a role that does not trust the caller:
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/troubleshoot-403-errors.html
    resource = f'"{need.resource}"' if need.action.startswith("s3:") else need.resource
    where = "" if kind == "role trust" else f" on resource: {resource}"
    policy = kind if kind.endswith("boundary") else f"{kind} policy"
    if decision is Decision.EXPLICITLY_DENIED:
        article = "the" if kind == "role trust" else "an" if kind[0] in "aeiou" else "a"
        why = f"with an explicit deny in {article} {policy}"
    else:
        why = f"because no {policy} allows the {need.action} action"
    return access_denied(request, f"User: {caller} is not authorized to perform: {need.action}{where} {why}")


def access_denied(request: AwsRequest, message: str) -> Refusal:
    """Return the refusal for denied access, with the error code that the service uses."""
    if _speaks_json(request):
        return Refusal(400, "AccessDeniedException", message)
    return Refusal(403, "AccessDenied", message)


def unknown_credentials(request: AwsRequest) -> Refusal:
    """Return the refusal for an access key or a session that does not exist in the account.

    S3: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; STS, IAM and JSON services:
    https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html
    """
    if request.service == "s3":
        return Refusal(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
    message = "The security token included in the request is invalid"
    if _speaks_json(request):
        return Refusal(400, "UnrecognizedClientException", message)
    return Refusal(403, "InvalidClientTokenId", f"{message}.")


def expired(request: AwsRequest) -> Refusal:
    """Return the refusal for expired credentials of a session. The sources are the same as in `unknown_credentials`."""
    if request.service == "s3":
        return Refusal(400, "ExpiredToken", "The provided token has expired.")
    message = "The security token included in the request is expired"
    return (
        Refusal(400, "ExpiredTokenException", message)
        if _speaks_json(request)
        else Refusal(403, "ExpiredToken", message)
    )


def throttled(request: AwsRequest) -> Refusal:
    """Return the refusal for a request that exceeds the request rate.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html,
    https://docs.aws.amazon.com/glue/latest/webapi/CommonErrors.html
    """
    if request.service == "s3":
        return Refusal(503, "SlowDown", "Please reduce your request rate.")
    if _speaks_json(request):
        return Refusal(400, "ThrottlingException", "Rate exceeded")
    return Refusal(400, "Throttling", "Rate exceeded")


def answer(refusal: Refusal, request: AwsRequest, method: str, start_response: "StartResponse") -> Iterable[bytes]:
    """Send the error as the response. For HEAD requests, send only the status, like S3."""
    if _speaks_json(request):
        body = msgspec.json.encode({"__type": refusal.code, "Message": refusal.message})
        headers = [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", refusal.code)]
    else:
        error = f"<Code>{refusal.code}</Code><Message>{escape(refusal.message, quote=False)}</Message>"
        if request.service == "s3":
            text = f"<Error>{error}<RequestId>0</RequestId></Error>"
        else:
            text = f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>0</RequestId></ErrorResponse>"
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
        headers = [("Content-Type", "application/xml")]
    body = b"" if method == "HEAD" else body
    start_response(f"{refusal.status} Refused", [*headers, ("Content-Length", str(len(body)))])
    return [body]


def drain(environ: dict[str, Any]) -> None:
    """Read the rest of the request's body. If the server closed the connection early, clients would report an error."""
    remaining = int(environ.get("CONTENT_LENGTH") or 0)
    stream = environ["wsgi.input"]
    if environ.get("wsgi.input_terminated"):
        while stream.read(1 << 20):
            pass
    while remaining > 0 and (chunk := stream.read(min(remaining, 1 << 20))):
        remaining -= len(chunk)


def _speaks_json(request: AwsRequest) -> bool:
    return request.service not in ("s3", "sts", "iam", "cloudformation")
