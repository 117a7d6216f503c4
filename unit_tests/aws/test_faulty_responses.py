"""Answers that are none: cut off on their way, or a refusal under a name that the client library does not know."""

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


class Answers:
    """What AWS says to one request after the other, the last of it for ever."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self._left = list(answers)
        self.given = 0

    def __call__(self, **event: Any) -> AWSResponse:
        self.given += 1
        status, body = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        raw: Any = io.BytesIO(body)
        raw.stream = lambda *_, **__: iter([body])
        return AWSResponse(event["request"].url, status, HTTPHeaders(), raw)


def client(service: Any, answers: Answers) -> Any:
    # Each access has clients of its own.
    access = AwsAccess("eu-west-1", AccessKeys(f"key-{id(answers)}", "secret"), "http://localhost:1", attempts=2)
    made = access.client(service)
    made.meta.events.register("before-send", answers)
    return made


@pytest.mark.parametrize("cut", [b"", DATABASE[:13], b"[]"])
def test_a_catalog_s_answer_that_was_cut_off_is_asked_for_again(cut: bytes) -> None:
    answers = Answers((200, cut), (200, DATABASE))

    assert client("glue", answers).get_database(Name="shop")["Database"]["Name"] == "shop"
    assert answers.given == 2


@pytest.mark.parametrize("cut", [b"", LISTING[:-9]])
def test_a_listing_that_was_cut_off_is_no_empty_folder(cut: bytes) -> None:
    answers = Answers((200, cut), (200, LISTING))

    assert client("s3", answers).list_objects_v2(Bucket="lake")["KeyCount"] == 0
    assert answers.given == 2


def test_answers_that_are_always_cut_off_are_trouble_of_aws_s_own() -> None:
    with pytest.raises(ClientError) as caught:
        client("glue", Answers((200, DATABASE[:13]))).get_table(DatabaseName="shop", Name="orders")

    failure = explain(caught.value, doing="read", resource="table shop.orders")
    assert failure is not None
    assert failure.message == "Cannot read table shop.orders (Glue, GetTable): AWS could not answer. Try again later."
    assert failure.type == "transient_error"


def test_an_answer_without_content_may_be_empty() -> None:
    answers = Answers((200, b""))

    client("glue", answers).delete_table(DatabaseName="shop", Name="orders")
    s3 = client("s3", answers)
    s3.put_object(Bucket="lake", Key="a", Body=b"")
    s3.head_object(Bucket="lake", Key="a")

    assert answers.given == 3


def test_too_many_requests_are_made_again_more_slowly() -> None:
    answers = Answers((429, TOO_MANY), (200, b""))

    client("s3", answers).put_object(Bucket="lake", Key="a", Body=b"")

    assert answers.given == 2


def test_too_many_requests_without_an_end_are_a_reason_to_try_later() -> None:
    with pytest.raises(ClientError) as caught:
        client("s3", Answers((429, TOO_MANY))).put_object(Bucket="lake", Key="a", Body=b"")

    failure = explain(caught.value, doing="write to", resource="s3://lake/a")
    assert failure is not None
    assert "AWS keeps asking us to slow down" in failure.message
    assert failure.type == "transient_error"
