"""botocore: exception classes, and responses that are incomplete."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import IncompleteReadError

pytestmark = pytest.mark.slow

DATABASE = b'{"Database":{"Name":"shop"}}'


class Responses:
    """What AWS answers to one request after the other, the last of it for ever."""

    def __init__(self, *responses: tuple[int, bytes], length: int | None = None) -> None:
        self._left = list(responses)
        self._length = length
        self.given = 0

    def __call__(self, **event: Any) -> AWSResponse:
        self.given += 1
        status, body = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        raw: Any = io.BytesIO(body)
        raw.stream = lambda *_, **__: iter([body])
        headers = HTTPHeaders()
        if self._length is not None:
            headers["Content-Length"] = str(self._length)
        return AWSResponse(event["request"].url, status, headers, raw)


def client(service: str, responses: Responses) -> Any:
    made: BaseClient = botocore.session.Session().create_client(
        service,
        "eu-west-1",
        endpoint_url="http://localhost:1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(retries={"mode": "standard", "total_max_attempts": 2}),
    )
    answer: Any = responses
    made.meta.events.register("before-send", answer)
    return made


def test_exception_classes_are_created_at_first_use_without_a_lock() -> None:
    glue = client("glue", Responses((200, DATABASE)))
    factory = glue._exceptions_factory

    # What two threads do that both find the cache empty
    first, second = (factory._create_client_exceptions(glue.meta.service_model) for _ in range(2))

    assert factory._client_exceptions_cache == {}
    assert first.EntityNotFoundException is not second.EntityNotFoundException


def test_a_response_body_that_ends_early_is_not_requested_again() -> None:
    responses = Responses((200, b"half"), length=8)
    body = client("s3", responses).get_object(Bucket="lake", Key="a")["Body"]

    with pytest.raises(IncompleteReadError):
        body.read()

    assert responses.given == 1


def test_a_response_body_as_a_context_manager_does_not_detect_that_it_ends_early() -> None:
    responses = Responses((200, b"half"), length=8)

    with client("s3", responses).get_object(Bucket="lake", Key="a")["Body"] as body:
        assert body.read() == b"half"


def test_credentials_that_last_15_minutes_are_renewed_for_every_request() -> None:
    fetched: list[int] = []

    def fetch() -> dict[str, str]:
        fetched.append(1)
        expires = datetime.now(UTC) + timedelta(minutes=15)
        return {"access_key": "key", "secret_key": "s", "token": "t", "expiry_time": expires.isoformat()}

    credentials = RefreshableCredentials.create_from_metadata(fetch(), fetch, "assume-role")
    for _ in range(3):
        credentials.get_frozen_credentials()

    assert len(fetched) == 4
