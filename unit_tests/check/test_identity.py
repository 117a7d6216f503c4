"""Steps about the caller: whose credentials they are, and to whom permissions are given."""

from __future__ import annotations

import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.caller import caller_arn, role_of_session
from destination_datalake.aws.session.assumed_role import Role
from destination_datalake.check.identity import try_identity, try_server
from destination_datalake.check.step import Findings
from unit_tests.check.examples import a_trial
from unit_tests.cloud import Cloud
from unit_tests.spark.connect.server import Server

ACCOUNT = "123456789012"


@pytest.mark.parametrize(("account", "failures"), [(None, 0), (ACCOUNT, 0), ("999999999999", 1)])
def test_credentials_of_another_account_are_a_failure(cloud: Cloud, account: str | None, failures: int) -> None:
    findings = Findings()

    try_identity(a_trial(cloud.access, aws_account_id=account), findings)

    assert len(findings.failures) == failures


@pytest.mark.parametrize(
    ("arn", "principal"),
    [
        (f"arn:aws:iam::{ACCOUNT}:user/team/loader", f"arn:aws:iam::{ACCOUNT}:user/team/loader"),
        (f"arn:aws:sts::{ACCOUNT}:assumed-role/loader/some-session", f"arn:aws:iam::{ACCOUNT}:role/loader"),
        (f"arn:aws-cn:sts::{ACCOUNT}:assumed-role/loader/x", f"arn:aws-cn:iam::{ACCOUNT}:role/loader"),
    ],
)
def test_permissions_are_given_to_the_user_or_role_of_a_session(arn: str, principal: str) -> None:
    assert role_of_session(arn) == principal


def test_a_role_of_the_options_is_the_caller_with_its_path() -> None:
    role = Role(f"arn:aws:iam::{ACCOUNT}:role/team/loader")

    assert caller_arn(AwsAccess("us-east-1", role)) == role.arn


def test_a_configured_role_is_the_principal_of_remedies(cloud: Cloud) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/team/loader"
    trial = a_trial(cloud.access, credentials={"credentials_title": "IAM Role", "role_arn": role})

    try_identity(trial, Findings())

    assert trial.remedies is not None
    assert trial.remedies.principal == role


def test_a_server_without_tls_is_warned_of(cloud: Cloud) -> None:
    findings = Findings()

    with Server() as server:
        try_server(a_trial(cloud.access, spark={"remote": server.url}), findings)

    assert findings.failures == []
    assert [note.partition(":")[0] for note in findings.notes] == ["The connection to spark.remote has no TLS"]
