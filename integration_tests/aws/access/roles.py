"""What STS asks of a role that is assumed, besides what policies say.

https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
"""

from integration_tests.aws.access.call import Call
from integration_tests.aws.access.identity import Caller, role_of
from integration_tests.aws.access.refusal import Refusal, access_denied

_CHAINED_SECONDS = 3600
"""https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles.html#iam-term-role-chaining"""


def role_can_be_assumed(call: Call) -> Refusal | None:
    """The role exists, and its maximum duration is not exceeded.

    moto lets roles be assumed that IAM does not have; only whoever can be refused at all is refused for that.
    """
    request = call.request
    if (request.service, request.operation) != ("sts", "AssumeRole"):
        return None
    arn = request.text("RoleArn")
    role = role_of(arn, call.account)
    if role is None:
        if not isinstance(call.identity, Caller):
            return None
        # STS does not tell an unknown role from one that does not trust the caller.
        message = f"User: {call.caller} is not authorized to perform: sts:AssumeRole on resource: {arn}"
        return access_denied(request, message)
    seconds = int(request.text("DurationSeconds") or 3600)
    if seconds > int(role.max_session_duration or 3600):
        return _too_long("the MaxSessionDuration set for this role.")
    if call.principal.role_arn and seconds > _CHAINED_SECONDS:
        return _too_long("the 1 hour session limit for roles assumed by role chaining.")
    return None


def session_can_be_begun(call: Call) -> Refusal | None:
    """A session begins with a key that lasts (https://docs.aws.amazon.com/STS/latest/APIReference/API_GetSessionToken.html)."""
    if (call.request.service, call.request.operation) != ("sts", "GetSessionToken") or call.identity.expires is None:
        return None
    return access_denied(call.request, "Cannot call GetSessionToken with session credentials")


def _too_long(limit: str) -> Refusal:
    return Refusal(400, "ValidationError", f"The requested DurationSeconds exceeds {limit}")
