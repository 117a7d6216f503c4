"""Tasks that have to be done again because the credentials that they came with had ended."""

from __future__ import annotations

from dataclasses import replace

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.errors import is_expired
from destination_datalake.aws.session.lending import SessionKeys
from destination_datalake.errors import Failure


def has_expired(access: AwsAccess, error: BaseException) -> bool:
    """Return whether an executor was refused because the session it was lent, which it cannot renew, had ended."""
    return isinstance(access.identity, SessionKeys) and is_expired(error)


def expiry_failure(failure: Failure, subject: str) -> Failure:
    """Return the failure of a task that its session was too short for. `subject` begins the message."""
    message = (
        f"{subject}: the session that executors were lent ended before they had. Lower batch_size_mb, or raise "
        "session_duration_seconds; the next sync continues from its last state."
    )
    return replace(failure, message=message, type="transient_error")
