"""Temporary credentials are masked, every generation of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.errors import explain
from destination_datalake.aws.secrets import known_secrets, mask_secrets, register_secrets
from destination_datalake.aws.session.assumed_role import Role


def keys_of(access: AwsAccess) -> tuple[str, str, str]:
    """What the access's clients sign with, once they have signed something."""
    access.client("glue").get_databases()
    found = access.session().get_credentials()
    assert found is not None
    frozen = found.get_frozen_credentials()
    return frozen.access_key or "", frozen.secret_key or "", frozen.token or ""


ROLE = Role("arn:aws:iam::123456789012:role/airbyte", session_duration_seconds=900)


@pytest.fixture(autouse=True)
def keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "FQoGZXIvYXdzEBYaDEXAMPLE+source/token==")
    with mock_aws():
        yield


def test_the_credentials_of_a_role_and_those_it_is_assumed_with_are_masked() -> None:
    keys = keys_of(AwsAccess("eu-west-1", ROLE))

    for secret in (*keys, "FQoGZXIvYXdzEBYaDEXAMPLE+source/token=="):
        assert secret
        assert secret in known_secrets()
        assert mask_secrets(f"The canonical request was: {secret}/host") == "The canonical request was: ****/host"


def test_renewed_credentials_and_the_ones_before_are_masked() -> None:
    _, _, first = keys_of(AwsAccess("eu-west-1", ROLE))
    # Another access assumes the role again, as a renewal does.
    _, _, second = keys_of(AwsAccess("eu-west-2", ROLE))

    assert first != second
    assert {first, second} <= set(known_secrets())


def test_an_explained_error_does_not_show_a_session_token() -> None:
    token = "FwoGZXIvYXdzEXAMPLE/of+a/token=="
    register_secrets(token)
    text = f"The Canonical String should have been 'POST\n/\n\nx-amz-security-token:{token}\n'"
    error = ClientError({"Error": {"Code": "InvalidSignatureException", "Message": text}}, "GetTable")

    failure = explain(error, doing="read", resource="table shop.orders")

    assert failure is not None
    assert token not in failure.message + failure.detail
    assert re.search(r"x-amz-security-token:\*\*\*\*", failure.detail)


def test_short_texts_are_not_secrets() -> None:
    register_secrets("s3", None, "")

    assert mask_secrets("s3") == "s3"
