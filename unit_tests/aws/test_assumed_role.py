"""A role's credentials: assumed when they are needed, renewed before they expire."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core.utils import utcnow
from moto.sts.models import AssumedRole

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import PART_BYTES, Upload
from destination_datalake.aws.session import Role

ROLE = Role("arn:aws:iam::123456789012:role/airbyte", session_duration_seconds=900)


@pytest.fixture(autouse=True)
def keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    with mock_aws():
        yield


def test_an_upload_goes_on_with_new_credentials_when_those_of_its_first_parts_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Due for renewal whenever they are asked for.
    nearly_over = property(lambda _: utcnow() + timedelta(seconds=100), lambda *_: None)
    monkeypatch.setattr(AssumedRole, "expiration", nearly_over, raising=False)
    boto3.client("s3", "us-east-1").create_bucket(Bucket="lake")
    s3 = AwsAccess("us-east-1", ROLE).client("s3")
    signed_by: list[str] = []

    def note(request: Any, **_: object) -> None:
        signed_by.extend(re.findall(r"Credential=(\w+)", str(request.headers["Authorization"])))

    s3.meta.events.register("before-send.s3.UploadPart", note)

    upload = Upload(s3, "s3://lake/big", deferred=False)
    upload.write(b"x" * (2 * PART_BYTES + 1))
    upload.close()

    assert len(signed_by) == len(set(signed_by)) == 3
    assert s3.head_object(Bucket="lake", Key="big")["ContentLength"] == 2 * PART_BYTES + 1


def test_a_role_of_fifteen_minutes_is_not_assumed_again_for_every_request() -> None:
    access = AwsAccess("eu-west-3", ROLE)
    tokens = set()
    for _ in range(3):
        access.client("glue").get_databases()
        credentials = access.session().get_credentials()
        assert credentials is not None
        tokens.add(credentials.get_frozen_credentials().token)

    assert len(tokens) == 1


@pytest.mark.parametrize(("lifetime", "before"), [(900, 300), (2700, 900), (3600, 900), (43200, 900)])
def test_a_role_is_renewed_in_the_last_third_of_its_lifetime_or_its_last_quarter_hour(
    lifetime: int, before: int
) -> None:
    role = Role("arn:aws:iam::123456789012:role/airbyte", session_duration_seconds=lifetime)

    assert role.renewed_before_seconds == before
