"""Trials for tests of steps."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.check.step import CheckContext, Remedies, StepFindings
from destination_datalake.config.options import Config
from unit_tests.cloud import before
from unit_tests.config.examples import options

UNIQUE = "0123456789abcdef" * 2
USER = "arn:aws:iam::123456789012:user/airbyte"


def a_context(access: AwsAccess, **changes: Any) -> CheckContext:
    """A check with these changes of the smallest options, after AWS has said who calls."""
    config = Config.parse(options(**changes))
    return CheckContext(config, access, UNIQUE, Remedies.for_caller(config, "123456789012", USER))


def findings_of(context: CheckContext) -> StepFindings:
    """What a step of the context starts with."""
    return StepFindings(context.remedies)


def deny(access: AwsAccess, service: str, operation: str, text: str = "not authorized") -> None:
    """Have AWS deny an operation to these clients, in these words."""

    def answer(_: int) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": text}}, operation)

    before(access, service, operation, answer)
