"""The rules that a call must pass, in the order in which AWS applies them."""

from collections.abc import Callable
from datetime import UTC, datetime

from integration_tests.aws.access.authorization import policies_allow_it
from integration_tests.aws.access.call import Call
from integration_tests.aws.access.identity import Nobody
from integration_tests.aws.access.refusal import Refusal, expired, unknown_credentials
from integration_tests.aws.access.roles import role_can_be_assumed, session_can_be_begun
from integration_tests.aws.objects.implied import key_can_be_used

Rule = Callable[[Call], Refusal | None]


def refused(call: Call) -> Refusal | None:
    """Return why the call is refused, or nothing. Raises ValueError for a policy that is not understood here."""
    return next((refusal for rule in RULES if (refusal := rule(call)) is not None), None)


def credentials_are_valid(call: Call) -> Refusal | None:
    """The key belongs to somebody, and a session has not expired."""
    if isinstance(call.identity, Nobody):
        return unknown_credentials(call.request)
    ends = call.identity.expires
    return expired(call.request) if ends is not None and ends <= datetime.now(UTC) else None


RULES: tuple[Rule, ...] = (
    credentials_are_valid,
    policies_allow_it,
    role_can_be_assumed,
    session_can_be_begun,
    key_can_be_used,
)
