"""Trials for tests of steps."""

from __future__ import annotations

from typing import Any

from destination_datalake.aws.access import AwsAccess
from destination_datalake.check.trial import Caller, Trial
from destination_datalake.config.options import Config
from unit_tests.config.examples import options

UNIQUE = "0123456789abcdef" * 2
USER = "arn:aws:iam::123456789012:user/airbyte"


def a_trial(access: AwsAccess, **changes: Any) -> Trial:
    """A check with these changes of the smallest options, after AWS has said who calls."""
    return Trial(Config.parse(options(**changes)), access, UNIQUE, Caller("123456789012", USER))
