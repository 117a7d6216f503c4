"""Who the connector is for AWS."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from destination_datalake.aws.session.assumed_role import Role

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_SESSION = re.compile(r"arn:(?P<partition>[a-z-]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/.+")


def caller_arn(access: AwsAccess) -> str:
    """Return the ARN of the IAM user or role that requests are made as, for grants to it. Raises what STS raises.

    A session's ARN lacks the path of its role; for a role with a path that the options do not name, it has to be added.
    """
    if isinstance(access.identity, Role):
        return access.identity.arn
    return role_of_session(access.client("sts").get_caller_identity()["Arn"])


def role_of_session(arn: str) -> str:
    """Return the ARN of the role, without its path, whose session has this ARN; the ARN of a user as it is."""
    found = _SESSION.fullmatch(arn)
    return f"arn:{found['partition']}:iam::{found['account']}:role/{found['role']}" if found else arn
