"""Answers that AWS's client library would take as they are, though they are none.

What is changed before it is parsed, the library itself tries again as it does with any trouble of AWS's own, and
reports as such in the end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from botocore.session import Session

_SERVICES = ("s3", "glue", "sts")


def retry_faulty_responses(session: Session) -> None:
    """Let every client of the session look at what it is answered."""
    for service in _SERVICES:
        session.register(f"before-parse.{service}", _as_trouble)
        session.register(f"needs-retry.{service}", _take_over_the_status)


def _as_trouble(**event: Any) -> None:
    """Give answers that ask for another try the status of such.

    S3's "TooManyRequests" is a 429, which the library's list of throttling has only under other names. A body that was
    cut off reads like one in which everything is missing.
    """
    operation, answer = event["operation_model"], event["response_dict"]
    status = answer["status_code"]
    if status == 429:
        answer["status_code"] = 503
    elif status < 300 and _has_body(operation) and not _is_whole(operation, answer["body"]):
        answer["status_code"] = 500
        answer["body"] = b""


def _take_over_the_status(**event: Any) -> None:
    """Let whoever decides on another try see the status that was parsed; botocore does so for S3 alone."""
    if event["response"] is not None:
        http_response, parsed = event["response"]
        http_response.status_code = parsed["ResponseMetadata"]["HTTPStatusCode"]


def _has_body(operation: OperationModel) -> bool:
    """Whether members of the answer are in its body, and not in headers or a stream."""
    output = operation.output_shape
    if output is None or operation.has_streaming_output:
        return False
    return any("location" not in member.serialization for member in output.members.values())


def _is_whole(operation: OperationModel, body: bytes) -> bool:
    try:
        if operation.service_model.protocol == "json":
            return isinstance(json.loads(body), dict)
        ElementTree.fromstring(body.strip())
    except (ValueError, ElementTree.ParseError):
        return False
    return True
