"""The rules that a call must satisfy, in the order in which AWS applies them."""

from collections.abc import Callable
from datetime import UTC, datetime

from emulated_aws.access.authorization import policies_allow_it
from emulated_aws.access.call import Call
from emulated_aws.access.identity import Caller, Nobody, role_of
from emulated_aws.access.refusal import Refusal, access_denied, expired, unknown_credentials
from emulated_aws.objects.implied import key_can_be_used, metadata_fits

Rule = Callable[[Call], Refusal | None]


def refused(call: Call) -> Refusal | None:
    """Return the refusal of a call, or None if the call satisfies all rules.

    Raises ValueError for a policy that this emulation does not support.
    """
    return next((refusal for rule in RULES if (refusal := rule(call)) is not None), None)


def credentials_are_valid(call: Call) -> Refusal | None:
    """Require that the access key exists, and that a session has not expired."""
    if isinstance(call.identity, Nobody):
        return unknown_credentials(call.request)
    ends = call.identity.expires
    return expired(call.request) if ends is not None and ends <= datetime.now(UTC) else None


_CHAINED_SECONDS = 3600
"""https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles.html#iam-term-role-chaining"""


def role_can_be_assumed(call: Call) -> Refusal | None:
    """Require for AssumeRole that the role exists, and that the session does not exceed the maximum duration.

    https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
    moto allows callers to assume roles that do not exist in IAM. This rule refuses such a request only for a `Caller`.
    """
    request = call.request
    if (request.service, request.operation) != ("sts", "AssumeRole"):
        return None
    arn = request.text("RoleArn")
    role = role_of(arn, call.account)
    if role is None:
        if not isinstance(call.identity, Caller):
            return None
        # STS answers in the same way for an unknown role and for a role that does not trust the caller.
        message = f"User: {call.caller} is not authorized to perform: sts:AssumeRole on resource: {arn}"
        return access_denied(request, message)
    seconds = int(request.text("DurationSeconds") or 3600)
    if seconds > int(role.max_session_duration or 3600):
        return _too_long("the MaxSessionDuration set for this role.")
    if call.principal.role_arn and seconds > _CHAINED_SECONDS:
        return _too_long("the 1 hour session limit for roles assumed by role chaining.")
    return None


def session_can_be_begun(call: Call) -> Refusal | None:
    """Require for GetSessionToken that the caller does not use the credentials of a session.

    https://docs.aws.amazon.com/STS/latest/APIReference/API_GetSessionToken.html
    """
    if (call.request.service, call.request.operation) != ("sts", "GetSessionToken") or call.identity.expires is None:
        return None
    return access_denied(call.request, "Cannot call GetSessionToken with session credentials")


def _too_long(limit: str) -> Refusal:
    return Refusal(400, "ValidationError", f"The requested DurationSeconds exceeds {limit}")


RULES: tuple[Rule, ...] = (
    metadata_fits,
    credentials_are_valid,
    policies_allow_it,
    role_can_be_assumed,
    session_can_be_begun,
    key_can_be_used,
)
