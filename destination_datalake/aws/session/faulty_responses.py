"""Has botocore retry responses that it would take as valid: truncated bodies, and 429 under a name it does not know.

Each is given the status of a server error before it is parsed. botocore then retries it like any server error, and
raises it as one when its attempts are used up.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from botocore.session import Session

_SERVICES = ("s3", "glue", "lakeformation", "sts")


def retry_faulty_responses(session: Session) -> None:
    """Register the check with every client that the session makes from now on."""
    for service in _SERVICES:
        session.register(f"before-parse.{service}", _mark_as_server_error)
        session.register(f"needs-retry.{service}", _copy_status)


def _mark_as_server_error(**event: Any) -> None:
    """Change the status of responses that need a retry.

    S3's "TooManyRequests" is a 429; botocore knows throttling by other names only. A truncated body is parsed like one
    in which all members are absent.
    """
    operation, response = event["operation_model"], event["response_dict"]
    status = response["status_code"]
    if status == 429:
        response["status_code"] = 503
    elif _is_truncated(operation, status, response["body"]):
        response["status_code"] = 500
        response["body"] = b""


def _is_truncated(operation: OperationModel, status: int, body: bytes) -> bool:
    """Whether the body ends early. An error need not be AWS's: a proxy may answer with a page of its own."""
    expected = _has_body(operation) if status < 300 else body.startswith(b"{")
    return expected and not _is_complete(operation, body)


def _copy_status(**event: Any) -> None:
    """Show the retry handler the status that was parsed; botocore does so for S3 only."""
    if event["response"] is not None:
        http_response, parsed = event["response"]
        http_response.status_code = parsed["ResponseMetadata"]["HTTPStatusCode"]


def _has_body(operation: OperationModel) -> bool:
    """Whether members of the output are in the body, rather than in headers or a stream."""
    output = operation.output_shape
    if output is None or operation.has_streaming_output:
        return False
    return any("location" not in member.serialization for member in output.members.values())


def _is_complete(operation: OperationModel, body: bytes) -> bool:
    try:
        if operation.service_model.protocol in ("json", "rest-json"):
            return isinstance(json.loads(body), dict)
        ElementTree.fromstring(body.strip())
    except (ValueError, ElementTree.ParseError):
        return False
    return True
