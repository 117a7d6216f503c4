"""Temporary credentials are masked, every generation of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from destination_datalake.aws.access import AwsAccess, Role, mask_secrets, register_secrets
from destination_datalake.aws.errors import explain


def keys_of(access: AwsAccess) -> tuple[str, str, str]:
    """What the access's clients sign with, once they have signed something."""
    access.client("glue").get_databases()
    credentials = access.session().get_credentials()
    assert credentials is not None
    frozen = credentials.get_frozen_credentials()
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
        assert mask_secrets(f"The canonical request was: {secret}/host") == "The canonical request was: ****/host"


def test_renewed_credentials_and_the_ones_before_are_masked() -> None:
    _, _, first = keys_of(AwsAccess("eu-west-1", ROLE))
    # Another access assumes the role again, as a renewal does.
    _, _, second = keys_of(AwsAccess("eu-west-2", ROLE))

    assert first != second
    assert mask_secrets(f"{first} {second}") == "**** ****"


def test_an_explained_error_does_not_show_a_session_token() -> None:
    token = "FwoGZXIvYXdzEXAMPLE/of+a/token=="
    register_secrets(token)
    text = f"The Canonical String should have been 'POST\n/\n\nx-amz-security-token:{token}\n'"
    error = ClientError({"Error": {"Code": "InvalidSignatureException", "Message": text}}, "GetTable")

    failure = explain(error, doing="read", resource="table shop.orders")

    assert failure is not None
    assert token not in failure.message + failure.detail
    assert re.search(r"x-amz-security-token:\*\*\*\*", failure.detail)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("x-amz-security-token:TOKEN/+==\nhost", "x-amz-security-token:****\nhost"),
        ("{'X-Amz-Security-Token': 'TOKEN'}", "{'X-Amz-Security-Token': '****'}"),
        ("X-Amz-Security-Token=TOKEN%2F&next=1", "X-Amz-Security-Token=****&next=1"),
        ('{"X-Amz-Security-Token": "TOKEN"}', '{"X-Amz-Security-Token": "****"}'),
        (r'"{\"X-Amz-Security-Token\": \"TOKEN\"}"', r'"{\"X-Amz-Security-Token\": \"****\"}"'),
        ("{b'X-Amz-Security-Token': b'TOKEN'}", "{b'X-Amz-Security-Token': b'****'}"),
        ("<SessionToken>TOKEN</SessionToken> next", "<SessionToken>****</SessionToken> next"),
        ("{'SessionToken': 'TOKEN', 'Expiration': 1}", "{'SessionToken': '****', 'Expiration': 1}"),
        ("AWS_SESSION_TOKEN=TOKEN", "AWS_SESSION_TOKEN=****"),
        ("<SecretAccessKey>KEY/+</SecretAccessKey>", "<SecretAccessKey>****</SecretAccessKey>"),
        ('"SecretAccessKey":"KEY"', '"SecretAccessKey":"****"'),
        ("aws_secret_access_key is missing.", "aws_secret_access_key is missing."),
    ],
)
def test_credentials_of_other_processes_are_masked_after_their_names(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


def test_short_texts_are_not_secrets() -> None:
    register_secrets("s3", None, "")

    assert mask_secrets("s3") == "s3"


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("destination_datalake.aws.access._secrets", frozenset())
    monkeypatch.setattr("destination_datalake.aws.access._spellings", ())


@pytest.mark.parametrize(
    "value",
    [
        "true",
        "FALSE",
        "none",
        "1",
        "3600000",
        "86,400",
        "600s",
        "10 min",
        "default",
        "org.apache.TokenProvider",
        "arn:aws-cn:kms:cn-north-1:123456789012:key/1234abcd",
    ],
)
def test_what_a_setting_with_a_secretive_name_may_have_as_well_is_not_masked(value: str) -> None:
    register_secrets(value)

    assert mask_secrets(f'{{"success": {value}}}') == f'{{"success": {value}}}'


@pytest.mark.parametrize("secret", ["hunter2", "changeit", "1234567890123456", "correct horse battery staple"])
def test_a_password_is_masked(secret: str) -> None:
    register_secrets(secret)

    assert mask_secrets(f"the key's password is {secret}.") == "the key's password is ****."


def test_a_secret_that_contains_another_one_leaves_no_tail() -> None:
    register_secrets("hunter2", "hunter2-and-more")

    assert mask_secrets("hunter2-and-more hunter2") == "**** ****"


@pytest.mark.parametrize("secret", ['quo"ted\\pass', "new\nline-pass", "ünïcode-pass", "a+b/c==d&e", "it's a secret"])
def test_a_secret_is_masked_in_every_spelling(secret: str) -> None:
    register_secrets(secret)

    for text in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret), quote(secret, "")):
        masked = mask_secrets(f"a {text} b")
        assert masked.strip("ab ").strip("'\"") == "****", masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("at http://ada:p@ss@marquez:5000/api: refused", "at http://****@marquez:5000/api: refused"),
        ("at http://ada:p/w@marquez:5000/api: refused", "at http://****@marquez:5000/api: refused"),
        ("at http://ada:p?w#x@y@marquez?a=1#b", "at http://****@marquez?a=****#b"),
        ('{"a":"http://ada:p/w","b":"ada@host"}', '{"a":"http://ada:p/w","b":"ada@host"}'),
        ("'https://ada@host'", "'https://****@host'"),
        ("GET http://x/?api_key=abc&b&c=%20#part", "GET http://x/?api_key=****&****&c=****#part"),
        ('{"a":"https://host","b":"ada@host?x=1"}', '{"a":"https://host","b":"ada@host?x=1"}'),
        (
            "s3://lake/a@b?c=1 and https://host/path, or mail ada@host",
            "s3://lake/a@b?c=1 and https://host/path, or mail ada@host",
        ),
    ],
)
def test_users_and_parameters_of_urls_are_masked_and_keys_in_s3_are_not(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked
    assert mask_secrets(masked) == masked


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5), st.text(max_size=50))
def test_what_is_masked_has_none_of_the_secrets(secrets: list[str], text: str) -> None:
    register_secrets(*secrets)

    masked = mask_secrets("".join([text, *secrets]))

    assert not [secret for secret in secrets if mask_secrets(secret) == "****" and secret in masked]
