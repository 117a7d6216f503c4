"""Example options, and the message that refuses invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.errors import ConfigError

KEYS = {"credentials_title": "IAM User", "aws_access_key_id": "AKIA1234", "aws_secret_access_key": "s3cr3t/9876"}
ROLE = {"credentials_title": "IAM Role", "role_arn": "arn:aws:iam::123456789012:role/airbyte"}


def options(**changes: Any) -> dict[str, Any]:
    """The smallest configuration, with changes; a change to ... leaves the option out."""
    smallest = {"credentials": KEYS, "region": "eu-west-1", "bucket_name": "lake", "lakeformation_database_name": "raw"}
    return {key: value for key, value in {**smallest, **changes}.items() if value is not ...}


def refusal(given_options: dict[str, Any]) -> str:
    """The message with which the options are refused."""
    with pytest.raises(ConfigError) as caught:
        Config.parse(given_options)
    return str(caught.value)
