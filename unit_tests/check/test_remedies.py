"""Remedies: how a missing permission is given."""

from __future__ import annotations

from destination_datalake.aws.address import S3Address
from destination_datalake.check.remedies import Remedies
from destination_datalake.config.options import Config
from destination_datalake.errors import Failure, MissingPermission
from unit_tests.config.examples import options

ACCOUNT = "123456789012"
USER = f"arn:aws:iam::{ACCOUNT}:user/loader"


def remedy(missing: MissingPermission | None, detail: str = "") -> str:
    remedies = Remedies.of(Config.parse(options()), ACCOUNT, USER).with_folders([S3Address("other", "orders/")])
    return remedies.added_to(Failure("Cannot.", detail, "config_error", missing)).message.removeprefix("Cannot.")


def test_nothing_is_added_where_no_permission_is_missing_or_none_would_help() -> None:
    assert remedy(None) == ""
    assert remedy(MissingPermission("s3:PutObject"), "AccessDenied: with an explicit deny in a policy") == ""


def test_a_statement_includes_folders_of_tables_elsewhere() -> None:
    assert '"Resource": ["arn:aws:s3:::lake/*", "arn:aws:s3:::other/orders/*"]' in remedy(
        MissingPermission("s3:GetObject")
    )


def test_an_action_that_the_policy_does_not_have_is_allowed_on_what_aws_named() -> None:
    assert '"Action": ["sts:TagSession"], "Resource": ["arn:x"]' in remedy(MissingPermission("sts:TagSession", "arn:x"))


def test_what_the_policy_of_a_resource_does_not_allow_is_added_to_that_policy() -> None:
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
    detail = "AccessDenied: … because no resource-based policy allows the {} action"
    key, bucket = MissingPermission("kms:Decrypt", "arn:key"), MissingPermission("s3:GetObject", "arn:object")

    for_key, for_bucket = (remedy(each, detail.format(each.action)) for each in (key, bucket))

    assert for_key == (
        f' Statement for the key\'s policy: {{"Effect": "Allow", "Principal": {{"AWS": "{USER}"}}, '
        '"Action": ["kms:GenerateDataKey", "kms:Decrypt"], "Resource": ["*"]}'
    )
    assert for_bucket.startswith(
        f' Statement for the bucket\'s policy: {{"Effect": "Allow", "Principal": {{"AWS": "{USER}"}}, '
        '"Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::lake/*"'
    )


def test_a_permission_that_no_grant_has_is_granted_on_all_tables() -> None:
    assert "--permissions DROP " in remedy(MissingPermission("DROP", "orders"))
    assert '"TableWildcard": {}' in remedy(MissingPermission("DROP", "orders"))
