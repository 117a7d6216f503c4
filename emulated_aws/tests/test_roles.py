"""Who may assume a role and for how long, sessions of users, and the use of ended sessions."""

from collections.abc import Mapping
from typing import Any

import pytest
from emulated_aws.account import Account, Member, allow, deny
from emulated_aws.controls import sessions_lasting
from emulated_aws.server import ACCOUNT_ID

from tests.refusals import refusal

pytestmark = pytest.mark.share(7)

ROOT = f"arn:aws:iam::{ACCOUNT_ID}:root"


def assume(account: Account, caller: Member | None, role: Member, **given: object) -> str:
    """Assume a role. Return the error code, or an empty string if the request succeeds."""
    sts = account.client("sts", caller)
    request = {"RoleArn": role.arn, "RoleSessionName": "me", **given}
    try:
        sts.assume_role(**request)
    except sts.exceptions.ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


@pytest.mark.parametrize(
    ("given", "code"),
    [({"ExternalId": "airbyte-1"}, ""), ({"ExternalId": "airbyte-2"}, "AccessDenied"), ({}, "AccessDenied")],
)
@pytest.mark.parametrize("administrator", [True, False])
def test_a_role_asks_for_its_external_id(
    account: Account, given: dict[str, str], code: str, administrator: bool
) -> None:
    role = account.role(external_id="airbyte-1")
    caller = None if administrator else account.user(allow("sts:AssumeRole"))

    assert assume(account, caller, role, **given) == code


def test_an_account_that_is_trusted_still_decides_who_of_it_may(account: Account) -> None:
    role = account.role(trusted=ROOT)

    assert assume(account, account.user(allow("s3:*")), role) == "AccessDenied"
    assert assume(account, account.user(allow("sts:*", resource=role.arn)), role) == ""


def test_whom_a_role_trusts_by_name_needs_no_policy(account: Account) -> None:
    user, denied = account.user(), account.user(deny("sts:AssumeRole"))

    assert assume(account, user, account.role(trusted=user.arn)) == ""
    assert assume(account, denied, account.role(trusted=denied.arn)) == "AccessDenied"


def test_who_is_not_trusted_is_told_so(account: Account) -> None:
    role, user = account.role(trusted=account.user().arn), account.user(allow("sts:AssumeRole"))

    assert refusal(account.client("sts", user).assume_role, RoleArn=role.arn, RoleSessionName="me") == (
        "AccessDenied",
        f"User: {user.arn} is not authorized to perform: sts:AssumeRole "
        "because no role trust policy allows the sts:AssumeRole action",
    )


def test_a_role_that_there_is_none_of_cannot_be_assumed_by_a_user(account: Account) -> None:
    user = account.user(allow("sts:AssumeRole"))
    unknown = Member(f"arn:aws:iam::{ACCOUNT_ID}:role/unknown", "unknown", {}, {})

    assert assume(account, user, unknown) == "AccessDenied"
    assert assume(account, None, unknown) == ""


@pytest.mark.parametrize(("seconds", "code"), [(7200, ""), (7201, "ValidationError")])
def test_a_session_is_no_longer_than_its_role_allows(account: Account, seconds: int, code: str) -> None:
    role = account.role(max_seconds=7200)

    assert assume(account, None, role, DurationSeconds=seconds) == code


def test_a_chained_session_lasts_an_hour_at_most(account: Account) -> None:
    first, second = account.role(allow("sts:AssumeRole")), account.role(max_seconds=7200)

    assert assume(account, first, second, DurationSeconds=3600) == ""
    assert assume(account, first, second, DurationSeconds=3601) == "ValidationError"


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("service", "operation", "parameters", "code"),
    [
        ("s3", "list_objects_v2", {"Bucket": "landing"}, "ExpiredToken"),
        ("glue", "get_databases", {}, "ExpiredTokenException"),
        ("lakeformation", "get_data_lake_settings", {}, "ExpiredTokenException"),
        ("sts", "get_caller_identity", {}, "ExpiredToken"),
    ],
)
def test_credentials_end_when_a_test_says_so(
    account: Account, service: str, operation: str, parameters: dict[str, str], code: str
) -> None:
    role = account.role(allow("*"))
    lasting = account.client(service, role)
    with sessions_lasting(account.endpoint_url, 0, announced_seconds=900):
        ended = account.client(service, role)

    getattr(lasting, operation)(**parameters)
    assert refusal(getattr(ended, operation), **parameters)[0] == code


def session_of(account: Account, user: Member) -> Member:
    """Return a copy of the user with the credentials of a session instead of the access key."""
    return with_credentials(user, account.client("sts", user).get_session_token(DurationSeconds=900))


def with_credentials(member: Member, answer: Mapping[str, Any]) -> Member:
    """Return a copy of the member with the credentials in a response of STS."""
    names = {
        "AWS_ACCESS_KEY_ID": "AccessKeyId",
        "AWS_SECRET_ACCESS_KEY": "SecretAccessKey",
        "AWS_SESSION_TOKEN": "SessionToken",
    }
    return Member(member.arn, member.name, {}, {name: answer["Credentials"][key] for name, key in names.items()})


def test_a_user_s_session_needs_no_permission_and_may_do_what_the_user_may(account: Account, bucket: str) -> None:
    session = session_of(account, account.user(allow("s3:ListBucket")))
    s3 = account.client("s3", session)

    s3.list_objects_v2(Bucket=bucket)
    assert refusal(s3.put_object, Bucket=bucket, Key="a")[0] == "AccessDenied"


def test_a_user_s_session_ends_when_a_test_says_so(account: Account, bucket: str) -> None:
    user = account.user(allow("s3:ListBucket"))
    with sessions_lasting(account.endpoint_url, 0, announced_seconds=900):
        s3 = account.client("s3", session_of(account, user))

    assert refusal(s3.list_objects_v2, Bucket=bucket)[0] == "ExpiredToken"


def test_a_session_begins_no_other(account: Account) -> None:
    session = session_of(account, account.user())

    assert refusal(account.client("sts", session).get_session_token)[0] == "AccessDenied"


def test_a_session_s_policy_limits_the_role_s(account: Account, bucket: str) -> None:
    role = account.role(allow("s3:*"))
    reading = '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:List*", "Resource": "*"}}'
    answer = account.client("sts").assume_role(RoleArn=role.arn, RoleSessionName="me", Policy=reading)
    s3 = account.client("s3", with_credentials(role, answer))

    s3.list_objects_v2(Bucket=bucket)
    assert (
        "because no session policy allows the s3:PutObject action" in refusal(s3.put_object, Bucket=bucket, Key="a")[1]
    )
