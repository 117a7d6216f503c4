"""A policy document against what recorded requests needed. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emulated_aws.policies.patterns import resource_matches
from emulated_aws.policies.policy import Decision, decide, parse_policy
from emulated_aws.requests.needs import Need

Document = Mapping[str, Any]


def actions(document: Document) -> Sequence[str]:
    """Return every action of a policy, in its order."""
    return [action for statement in document["Statement"] for action in statement["Action"]]


def denied(document: Document, needs: Iterable[Need]) -> list[Need]:
    """Return what the policy does not allow of what requests need."""
    policies = [parse_policy(json.dumps(document))]
    return [
        need for need in needs if decide(policies, need.action, need.resource, need.conditions) is not Decision.ALLOWED
    ]


def unused(document: Document, needs: Iterable[Need]) -> list[tuple[str, str]]:
    """Return the actions with the patterns of resources that no request has used."""
    used = list(needs)
    return [
        (action, resource)
        for statement in document["Statement"]
        for action in statement["Action"]
        for resource in statement["Resource"]
        if not any(need.action == action and resource_matches(resource, need.resource) for need in used)
    ]


def without(document: Document, action: str) -> Document:
    """Return the policy without an action."""
    statements = [
        {**statement, "Action": [granted for granted in statement["Action"] if granted != action]}
        for statement in document["Statement"]
    ]
    return {**document, "Statement": [statement for statement in statements if statement["Action"]]}


def refused_without(document: Document, requests: Sequence[Sequence[Need]]) -> dict[str, int]:
    """Return, for each action, how many of the requests the policy refuses without it."""
    return {
        action: sum(bool(denied(reduced, needs)) for needs in requests)
        for action in actions(document)
        for reduced in [without(document, action)]
    }
