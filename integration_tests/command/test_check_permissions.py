"""`check` in an account that enforces IAM policies: missing permissions are named."""

import json

import pytest

from integration_tests.harness.account import Account, allow
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform


def config(lake: Lake, *allowed: str) -> dict[str, object]:
    """A configuration whose user has exactly the allowed actions."""
    return lake.config(credentials=Account(lake.endpoint_url).user(allow(*allowed)).credentials)


EVERYTHING = ("s3:*", "glue:*")


def test_permissions_for_s3_and_glue_suffice(platform: Platform, lake: Lake) -> None:
    assert platform.check(config(lake, *EVERYTHING)).connection_status == {"status": "SUCCEEDED"}


def test_missing_permission_to_list_tables_is_no_problem(platform: Platform, lake: Lake) -> None:
    tables = ("glue:GetTable", "glue:CreateTable", "glue:UpdateTable", "glue:DeleteTable")

    run = platform.check(config(lake, "s3:*", "glue:GetDatabase", "glue:CreateDatabase", *tables))

    assert run.connection_status == {"status": "SUCCEEDED"}
    assert any("Cannot look for earlier tables" in text and "Only a warning" in text for text in run.logs)


@pytest.mark.parametrize(
    ("allowed", "sentences"),
    [
        (("glue:*",), ["(S3, PutObject): access denied. Allow s3:PutObject on arn:aws:s3:::", "Policy statement for "]),
        (("s3:*", "glue:*Database", "glue:CreateTable", "glue:DeleteTable"), ["glue:GetTable", "glue:UpdateTable"]),
    ],
)
def test_missing_permissions_are_named_and_nothing_is_left_behind(
    platform: Platform, lake: Lake, allowed: tuple[str, ...], sentences: list[str]
) -> None:
    said = platform.check(config(lake, *allowed)).refusal

    for sentence in sentences:
        assert sentence in said
    intro, _, policy = said.splitlines()[-1].partition(" prints it: ")
    assert intro.startswith("All that this configuration needs from IAM, as `destination-datalake iam-policy")
    actions = {action for statement in json.loads(policy)["Statement"] for action in statement["Action"]}
    assert {"s3:PutObject", "glue:GetTable", "glue:UpdateTable", "glue:CreateTable"} <= actions
    assert (lake.objects(), lake.unfinished_uploads(), lake.tables()) == ({}, [], [])


def test_unknown_keys_are_reported_once_and_not_for_every_service(platform: Platform, lake: Lake) -> None:
    options = config(lake, *EVERYTHING)
    options["credentials"] = {
        "credentials_title": "IAM User",
        "aws_access_key_id": "AKIANOBODY1234567890",
        "aws_secret_access_key": "n0b0dy/knows/this/secret",
    }

    said = platform.check(options).refusal

    assert "AWS does not know the access key id. Check aws_access_key_id and aws_secret_access_key" in said
    assert "\n" not in said
