"""The rules that a call must pass, in the order in which AWS applies them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from integration_tests.aws.access.conditions import Context
from integration_tests.aws.access.identity import Administrator, Caller, Identity, Nobody
from integration_tests.aws.access.policy import Decision, Policy, Principal, decide
from integration_tests.aws.access.refusal import Refusal, denied, expired, reason, unknown_credentials
from integration_tests.aws.access.resources import resource_policy
from integration_tests.aws.requests.needs import Need
from integration_tests.aws.requests.request import AwsRequest


@dataclass(frozen=True, slots=True)
class Call:
    """A request, who makes it, and what it needs."""

    request: AwsRequest
    identity: Identity
    needs: list[Need]
    account: str


Rule = Callable[[Call], Refusal | None]


def refused(call: Call) -> Refusal | None:
    """Return why the call is refused, or nothing."""
    return next((refusal for rule in RULES if (refusal := rule(call)) is not None), None)


def credentials_are_valid(call: Call) -> Refusal | None:
    """The key belongs to somebody, and a session has not expired."""
    match call.identity:
        case Nobody():
            return unknown_credentials(call.request)
        case Caller(expires=datetime() as end) if end.replace(tzinfo=UTC) <= datetime.now(UTC):
            return expired(call.request)
    return None


def policies_allow_it(call: Call) -> Refusal | None:
    """Every action is allowed by the identity's policies or the resource's own, and denied by none.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-basics.html
    """
    return next((refusal for need in call.needs if (refusal := need_is_met(call, need)) is not None), None)


def need_is_met(call: Call, need: Need) -> Refusal | None:
    """Return why one need is refused, or nothing. Only a resource's Deny refuses an administrator."""
    identity, request = call.identity, call.request
    if isinstance(identity, Nobody):
        return None
    context = context_of(call, need)
    principal = identity.principal if isinstance(identity, Caller) else None
    policy = resource_policy(need.resource, call.account)
    of_resource = Decision.IMPLICITLY_DENIED
    if policy is not None:
        named = principal or Principal(arn_of(identity), "", call.account)
        of_resource = decide([policy], need.action, need.resource, context, named)
    if of_resource is Decision.EXPLICITLY_DENIED:
        return denied(request, arn_of(identity), need, reason(of_resource, "resource-based", need.action))
    if isinstance(identity, Administrator):
        return None

    def said(policies: tuple[Policy, ...]) -> Decision:
        return decide(policies, need.action, need.resource, context)

    of_identity = said(identity.policies)
    if of_identity is Decision.EXPLICITLY_DENIED or Decision.ALLOWED not in (of_identity, of_resource):
        return denied(request, identity.principal.arn, need, reason(of_identity, "identity-based", need.action))
    for limit in identity.limits:
        if (of_limit := said((limit,))) is not Decision.ALLOWED:
            return denied(request, identity.principal.arn, need, reason(of_limit, "session", need.action))
    return None


def context_of(call: Call, need: Need) -> Context:
    """Return the condition keys of a need: its own, and those that every request has.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html
    """
    request = call.request
    return {
        "aws:principalarn": [principal_arn(call.identity)],
        "aws:principalaccount": [call.account],
        "aws:requestedregion": [request.region],
        "aws:resourceaccount": [call.account],
        "aws:securetransport": ["true" if request.secure else "false"],
        **need.conditions,
    }


def principal_arn(identity: Identity) -> str:
    """Return aws:PrincipalArn: of a session it is the role's ARN."""
    match identity:
        case Caller(principal=principal):
            return principal.role_arn or principal.arn
        case Administrator(arn=arn) | Nobody(arn=arn):
            return arn


def arn_of(identity: Identity) -> str:
    """Return the ARN that error messages name."""
    return identity.principal.arn if isinstance(identity, Caller) else identity.arn


RULES: tuple[Rule, ...] = (credentials_are_valid, policies_allow_it)
