"""Decide whether policies allow an action on a resource.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from emulated_aws.policies.conditions import Condition, Context, all_met, conditions
from emulated_aws.policies.patterns import action_matches, resource_matches

Patterns = tuple[str, ...]


class Decision(Enum):
    """The decision of several policies. A Deny overrides every Allow. Without either, the action is denied."""

    ALLOWED = "allowed"
    IMPLICITLY_DENIED = "no policy allows it"
    EXPLICITLY_DENIED = "a policy denies it"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller, as the element Principal of a policy names it.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_principal.html
    """

    arn: str
    """The ARN of the user or of the role session."""
    role_arn: str
    """The ARN of the session's role, or "" for a user."""
    account: str

    def matches(self, named: str) -> bool:
        """Return whether a value of `AWS` names the caller, the caller's role, or all principals."""
        return named in ("*", self.arn, self.role_arn)

    def belongs_to(self, named: str) -> bool:
        """Return whether a value of `AWS` names the caller's account."""
        return named in (self.account, root(self.account))


def root(account: str) -> str:
    """Return the ARN by which policies name an account.

    A Deny for this ARN applies to all principals in the account. An Allow delegates the decision to the account's
    identity-based policies.
    """
    return f"arn:aws:iam::{account}:root"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a policy. Elements that the statement does not contain are None."""

    denies: bool
    actions: Patterns | None
    not_actions: Patterns | None
    resources: Patterns | None
    not_resources: Patterns | None
    principals: Patterns | None
    not_principals: Patterns | None
    conditions: tuple[Condition, ...]

    def applies(self, action: str, resource: str, context: Context, principal: Principal | None) -> bool:
        """Return whether the statement applies to an action on a resource.

        `principal` is None for an identity-based policy, which applies to its identity.
        """
        if self.actions is not None and not any(action_matches(pattern, action) for pattern in self.actions):
            return False
        if self.not_actions is not None and any(action_matches(pattern, action) for pattern in self.not_actions):
            return False
        if self.resources is not None and not any(resource_matches(pattern, resource) for pattern in self.resources):
            return False
        if self.not_resources is not None and any(resource_matches(arn, resource) for arn in self.not_resources):
            return False
        if principal is not None and not self._names(principal):
            return False
        return all_met(self.conditions, context)

    def _names(self, principal: Principal) -> bool:
        named = self.principals if self.principals is not None else self.not_principals or ()
        is_named = any(principal.matches(name) for name in named)
        of_account = any(principal.belongs_to(name) for name in named)
        if self.principals is not None:
            return is_named or (self.denies and of_account)
        return self.not_principals is None or not (is_named or of_account)


Policy = tuple[Statement, ...]


def decide(
    policies: Iterable[Policy], action: str, resource: str, context: Context, principal: Principal | None = None
) -> Decision:
    """Return the decision of several policies about an action on a resource.

    For the policies of resources, `principal` is the caller. In this case, only statements that name the caller count.
    """
    decision = Decision.IMPLICITLY_DENIED
    for policy in policies:
        for statement in policy:
            if statement.applies(action, resource, context, principal):
                if statement.denies:
                    return Decision.EXPLICITLY_DENIED
                decision = Decision.ALLOWED
    return decision


def delegates(policy: Policy, action: str, resource: str, context: Context, account: str) -> bool:
    """Return whether a resource's policy delegates the decision on an action to the account's identity-based policies.

    https://docs.aws.amazon.com/kms/latest/developerguide/key-policy-default.html
    """
    either = tuple(
        replace(
            statement, principals=tuple(root(account) if named == account else named for named in statement.principals)
        )
        for statement in policy
        if statement.principals is not None and not statement.denies
    )
    return decide([either], action, resource, context, Principal(root(account), "", account)) is Decision.ALLOWED


@lru_cache(maxsize=1024)
def parse_policy(document: str) -> Policy:
    """Parse a policy. Raises ValueError if the document is not a policy, or contains unsupported elements."""
    try:
        parsed = msgspec.json.decode(document)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a policy: {error}") from error
    return tuple(_statement(statement) for statement in _sequence(parsed["Statement"]))


_ELEMENTS = frozenset(
    {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Principal", "NotPrincipal", "Condition"}
)


def _statement(parsed: Mapping[str, Any]) -> Statement:
    if unknown := parsed.keys() - _ELEMENTS:
        raise ValueError(f"a statement has no {', '.join(sorted(unknown))}")
    if parsed["Effect"] not in ("Allow", "Deny"):
        raise ValueError(f"Effect is Allow or Deny, not {parsed['Effect']}")
    if ("Action" in parsed) == ("NotAction" in parsed):
        raise ValueError("a statement has either Action or NotAction")
    return Statement(
        parsed["Effect"] == "Deny",
        _patterns(parsed, "Action"),
        _patterns(parsed, "NotAction"),
        _patterns(parsed, "Resource"),
        _patterns(parsed, "NotResource"),
        _principals(parsed, "Principal"),
        _principals(parsed, "NotPrincipal"),
        conditions(parsed.get("Condition", {})),
    )


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _patterns(parsed: Mapping[str, Any], element: str) -> Patterns | None:
    return tuple(_sequence(parsed[element])) if element in parsed else None


def _principals(parsed: Mapping[str, Any], element: str) -> Patterns | None:
    """Return the values of `AWS` in an element, or `*`. Return services as `service:…`, which matches no caller."""
    if element not in parsed:
        return None
    named = parsed[element]
    if named == "*":
        return ("*",)
    services = (f"service:{service}" for service in _sequence(named.get("Service", [])))
    return (*_sequence(named.get("AWS", [])), *services)
