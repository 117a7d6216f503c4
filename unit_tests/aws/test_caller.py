"""Whom grants are made to: the user or the role behind the credentials."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.caller import caller_arn
from destination_datalake.aws.session.assumed_role import Role
from unit_tests.cloud import another_client

ROLE = "arn:aws:iam::123456789012:role/data/airbyte"


@pytest.mark.parametrize(
    ("identity", "caller"),
    [
        ("arn:aws:iam::123456789012:user/airbyte", "arn:aws:iam::123456789012:user/airbyte"),
        ("arn:aws:sts::123456789012:assumed-role/airbyte/session", "arn:aws:iam::123456789012:role/airbyte"),
        ("arn:aws-cn:sts::123456789012:assumed-role/a/b", "arn:aws-cn:iam::123456789012:role/a"),
    ],
)
@pytest.mark.usefixtures("cloud")
def test_a_session_is_its_role(identity: str, caller: str) -> None:
    access = another_client()

    def answer(**_: object) -> Any:
        return AWSResponse("https://sts", 200, HTTPHeaders(), None), {"Arn": identity}

    access.client("sts").meta.events.register("before-call.sts.GetCallerIdentity", answer)

    assert caller_arn(access) == caller


def test_the_role_that_the_options_name_has_its_path() -> None:
    assert caller_arn(AwsAccess("us-east-1", Role(ROLE))) == ROLE
