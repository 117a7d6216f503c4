"""Decide whether policies allow a call: the policies of the identity, its limits, and the policies of resources."""

from emulated_aws.access.call import Call
from emulated_aws.access.identity import Caller
from emulated_aws.access.refusal import Refusal, denied
from emulated_aws.objects.policies import ResourcePolicy, resource_policy
from emulated_aws.policies.policy import Decision, Policy, decide, delegates
from emulated_aws.requests.needs import Need


def policies_allow_it(call: Call) -> Refusal | None:
    """Return the refusal of the first need that the policies do not allow, or None if they allow all needs.

    Returns None for DeleteObjects, because S3 refuses each key of this operation separately.
    """
    if call.request.operation == "DeleteObjects":
        return None
    return next((refusal for need in call.needs if (refusal := unmet(call, need)) is not None), None)


def unmet(call: Call, need: Need) -> Refusal | None:
    """Return the refusal of a need, or None if the policies allow it. Evaluate the policies in the same order as AWS.

    Only the policy of a resource can refuse a request of an administrator: by an explicit deny, or if a role does not
    trust the account.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-basics.html
    """
    context, identity = call.context(need), call.identity

    def refusal(decision: Decision, kind: str) -> Refusal:
        return denied(call.request, call.caller, need, decision, kind)

    def decided_by(*policies: Policy) -> Decision:
        return decide(policies, need.action, need.resource, context)

    # A trust policy does not apply to actions of IAM, such as iam:PassRole.
    asks_resource = not need.action.startswith("iam:")
    attached_policy = resource_policy(need.resource, call.account) if asks_resource else None
    of_resource = attached_policy or ResourcePolicy((), "resource-based", False)
    by_resource = decide([of_resource.policy], need.action, need.resource, context, call.principal)
    if by_resource is Decision.EXPLICITLY_DENIED:
        return refusal(by_resource, of_resource.kind)
    by_identity = decided_by(*identity.policies) if isinstance(identity, Caller) else Decision.ALLOWED
    if by_identity is Decision.EXPLICITLY_DENIED:
        return refusal(by_identity, "identity-based")
    if by_resource is not Decision.ALLOWED:
        if by_identity is not Decision.ALLOWED:
            return refusal(by_identity, "identity-based")
        leaves_it = delegates(of_resource.policy, need.action, need.resource, context, call.account)
        if of_resource.decides and not leaves_it:
            return refusal(by_resource, of_resource.kind)
    for kind, limit in identity.limits if isinstance(identity, Caller) else ():
        if (by_limit := decided_by(limit)) is not Decision.ALLOWED:
            return refusal(by_limit, kind)
    return None
