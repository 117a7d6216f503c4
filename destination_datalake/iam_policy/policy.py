"""Statements of a policy, and the documents that hold them within IAM's limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from destination_datalake.config.options import Config
from destination_datalake.iam_policy.rules import CAPABILITIES, Condition
from destination_datalake.iam_policy.scope import Scope

MANAGED_POLICY_CHARACTERS = 6_144
"""How long a managed policy may be, white space not counted.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""
_SID_ROOM = "0000"


@dataclass(frozen=True, slots=True)
class Statement:
    """One Allow statement. `resources` are ARNs or patterns of ARNs."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: Condition

    def document(self) -> dict[str, Any]:
        """Return the statement as a policy document has it."""
        found: dict[str, Any] = {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": [*self.actions],
            "Resource": [*self.resources],
        }
        if self.condition:
            found["Condition"] = {
                operator: {key: [*values] for key, values in keys.items()} for operator, keys in self.condition.items()
            }
        return found


def statements(config: Config, scope: Scope) -> Sequence[Statement]:
    """Return what the configuration needs, and nothing else."""
    found = []
    for capability in CAPABILITIES:
        actions = tuple(each.action for each in capability.permissions if each.when.holds(config))
        if actions:
            resources = tuple(capability.resources(scope))
            found.append(Statement(capability.sid, actions, resources, capability.condition(scope)))
    return found


def document(policy: Sequence[Statement]) -> dict[str, Any]:
    """Return the policy document."""
    return {"Version": "2012-10-17", "Statement": [each.document() for each in policy]}


def characters(policy: Sequence[Statement]) -> int:
    """Return the document's length as IAM counts it: without white space."""
    text = json.dumps(document(policy), ensure_ascii=False, separators=(",", ":"))
    return len("".join(text.split()))


def parts(policy: Sequence[Statement], limit: int = MANAGED_POLICY_CHARACTERS) -> Sequence[Sequence[Statement]]:
    """Return the policy as documents of at most `limit` characters; usually it is one.

    A statement that is longer is divided by its resources. A request that needs several of them may find each in
    another document: IAM asks for each resource by itself. Raises ValueError for a resource longer than `limit`.
    """
    found: list[list[Statement]] = [[]]
    for statement in (piece for each in policy for piece in _numbered(each, limit)):
        if characters([*found[-1], statement]) > limit:
            found.append([])
        found[-1].append(statement)
    return found


def _numbered(statement: Statement, limit: int) -> Sequence[Statement]:
    """Return the statement, or pieces of it with Sids of their own, which have to be unique in a document."""
    pieces = [*_pieces(replace(statement, sid=f"{statement.sid}{_SID_ROOM}"), limit)]
    if len(pieces) == 1:
        return [statement]
    return [replace(piece, sid=f"{statement.sid}{number}") for number, piece in enumerate(pieces, start=1)]


def _pieces(statement: Statement, limit: int) -> Iterator[Statement]:
    """Divide a statement into pieces whose documents have at most `limit` characters."""
    if characters([statement]) <= limit:
        yield statement
        return
    half = len(statement.resources) // 2
    if half == 0:
        raise ValueError(f"a statement about {statement.resources[0]} is longer than {limit} characters")
    for resources in (statement.resources[:half], statement.resources[half:]):
        yield from _pieces(replace(statement, resources=resources), limit)
