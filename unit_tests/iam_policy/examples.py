"""Policies of example configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from destination_datalake.aws.objects import S3Address
from destination_datalake.config.options import Config
from destination_datalake.iam_policy.policy import Statement, statements
from destination_datalake.iam_policy.rules import Scope
from destination_datalake.protocol.catalog import StreamId
from unit_tests.config.examples import options

ACCOUNT = "123456789012"
KEY = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
LOCATION_ROLE = f"arn:aws:iam::{ACCOUNT}:role/lake-location"
ANALYST = f"arn:aws:iam::{ACCOUNT}:role/analyst"


def config(**changes: Any) -> Config:
    """The smallest configuration whose account is known, with a prefix."""
    return Config.parse(options(**{"aws_account_id": ACCOUNT, "bucket_prefix": "airbyte"} | changes))


def policy(given: Config, streams: Iterable[StreamId] = (), outside: Iterable[S3Address] = ()) -> dict[str, Statement]:
    """The statements by their Sids."""
    return {statement.sid: statement for statement in statements(given, Scope.for_config(given, streams, outside))}


def actions(given: Config) -> Sequence[str]:
    """Every action of the policy."""
    return [action for statement in policy(given).values() for action in statement.actions]
