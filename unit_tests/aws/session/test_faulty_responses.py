"""Truncated responses, and throttling under a name that botocore does not know, are retried."""

from __future__ import annotations

import io
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.aws.errors import explain

DATABASE = b'{"Database":{"Name":"shop"}}'
LISTING = b'<?xml version="1.0"?><ListBucketResult><Name>lake</Name><KeyCount>0</KeyCount></ListBucketResult>'
TOO_MANY = b"<Error><Code>TooManyRequests</Code><Message>Slow down.</Message></Error>"


class Responses:
    """The responses of AWS to consecutive requests; the last one is repeated."""

    def __init__(self, *responses: tuple[int, bytes]) -> None:
        self._left = list(responses)
        self.count = 0

    def __call__(self, **event: Any) -> AWSResponse:
        self.count += 1
        status, body = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        raw: Any = io.BytesIO(body)
        raw.stream = lambda *_, **__: iter([body])
        return AWSResponse(event["request"].url, status, HTTPHeaders(), raw)


def client(service: Any, responses: Responses) -> Any:
    # Each access has clients of its own.
    access = AwsAccess("eu-west-1", AccessKeys(f"key-{id(responses)}", "secret"), "http://localhost:1", attempts=2)
    made = access.client(service)
    made.meta.events.register("before-send", responses)
    return made


@pytest.mark.parametrize("truncated", [b"", DATABASE[:13], b"[]"])
def test_a_truncated_response_of_the_catalog_is_retried(truncated: bytes) -> None:
    responses = Responses((200, truncated), (200, DATABASE))

    assert client("glue", responses).get_database(Name="shop")["Database"]["Name"] == "shop"
    assert responses.count == 2


def test_a_truncated_response_of_lake_formation_is_retried() -> None:
    responses = Responses((200, b'{"LFTags":[{"Tag'), (200, b'{"LFTags":[]}'))

    assert client("lakeformation", responses).list_lf_tags()["LFTags"] == []
    assert responses.count == 2


@pytest.mark.parametrize("service", ["glue", "lakeformation"])
def test_a_truncated_error_is_retried(service: Any) -> None:
    responses = Responses((400, b'{"__type":"EntityNotFoundExce'), (200, b'{"Database":{"Name":"shop"}}'))

    if service == "glue":
        client(service, responses).get_database(Name="shop")
    else:
        client(service, responses).get_lf_tag(TagKey="pii")
    assert responses.count == 2


def test_an_error_that_a_proxy_answers_is_not_retried() -> None:
    responses = Responses((403, b"<html>Forbidden</html>"))

    with pytest.raises(ClientError):
        client("glue", responses).get_database(Name="shop")
    assert responses.count == 1


@pytest.mark.parametrize("truncated", [b"", LISTING[:-9]])
def test_a_truncated_listing_is_retried(truncated: bytes) -> None:
    responses = Responses((200, truncated), (200, LISTING))

    assert client("s3", responses).list_objects_v2(Bucket="lake")["KeyCount"] == 0
    assert responses.count == 2


def test_always_truncated_responses_are_raised_as_a_server_error() -> None:
    with pytest.raises(ClientError) as caught:
        client("glue", Responses((200, DATABASE[:13]))).get_table(DatabaseName="shop", Name="orders")

    failure = explain(caught.value, doing="read", resource="table shop.orders")
    assert failure is not None
    assert (
        failure.message == "Cannot read table shop.orders (Glue, GetTable): AWS could not process it. Try again later."
    )
    assert failure.type == "transient_error"


def test_an_empty_response_without_expected_members_is_not_retried() -> None:
    responses = Responses((200, b""))

    client("glue", responses).delete_table(DatabaseName="shop", Name="orders")
    s3 = client("s3", responses)
    s3.put_object(Bucket="lake", Key="a", Body=b"")
    s3.head_object(Bucket="lake", Key="a")

    assert responses.count == 3


def test_too_many_requests_is_retried() -> None:
    responses = Responses((429, TOO_MANY), (200, b""))

    client("s3", responses).put_object(Bucket="lake", Key="a", Body=b"")

    assert responses.count == 2


def test_too_many_requests_at_every_attempt_is_explained_as_throttling() -> None:
    with pytest.raises(ClientError) as caught:
        client("s3", Responses((429, TOO_MANY))).put_object(Bucket="lake", Key="a", Body=b"")

    failure = explain(caught.value, doing="write to", resource="s3://lake/a")
    assert failure is not None
    assert "AWS throttles the requests" in failure.message
    assert failure.type == "transient_error"
