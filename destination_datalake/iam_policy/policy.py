"""Generate the IAM policy statements and the Lake Formation grants for a configuration, within IAM's size limits."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from destination_datalake.config.options import Config
from destination_datalake.config.services import LOCATION_PERMISSIONS
from destination_datalake.iam_policy.rules import CAPABILITIES, Capability, Condition, Scope
from destination_datalake.lake_formation.governance import TO_TAG_DATABASE, TO_TAG_TABLE, CommandLines
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.lake_formation.state import AllTables, Catalog, Database, DataLocation, LfTag, Resource

MANAGED_POLICY_CHARACTERS = 6_144
"""The maximum length of a managed policy in characters, without white space.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""
_SID_ROOM = "0000"


@dataclass(frozen=True, slots=True)
class Statement:
    """A policy statement that allows actions on resources. `resources` are ARNs or ARN patterns."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: Condition

    def document(self) -> dict[str, Any]:
        """Return the statement as it appears in a policy document."""
        statement: dict[str, Any] = {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": [*self.actions],
            "Resource": [*self.resources],
        }
        if self.condition:
            statement["Condition"] = {
                operator: {key: [*values] for key, values in keys.items()} for operator, keys in self.condition.items()
            }
        return statement


def statements(config: Config, scope: Scope, capabilities: Sequence[Capability] = CAPABILITIES) -> Sequence[Statement]:
    """Return the policy statements for these capabilities. Omit actions that the configuration does not require."""
    policy = []
    for capability in capabilities:
        actions = tuple(permission.action for permission in capability.permissions if permission.when.holds(config))
        if actions:
            resources = tuple(capability.resources(scope))
            policy.append(Statement(capability.sid, actions, resources, capability.condition(scope)))
    return policy


def document(policy: Sequence[Statement]) -> dict[str, Any]:
    """Return the policy document that consists of these statements. `json.dumps` can serialize the result."""
    return {"Version": "2012-10-17", "Statement": [statement.document() for statement in policy]}


def characters(policy: Sequence[Statement]) -> int:
    """Return the length of the policy document. Like IAM, count characters, but no white space."""
    text = json.dumps(document(policy), ensure_ascii=False, separators=(",", ":"))
    # This also removes spaces inside values, because IAM's rule makes no exception for them.
    return len("".join(text.split()))


def parts(policy: Sequence[Statement]) -> Sequence[Sequence[Statement]]:
    """Divide a policy into documents that do not exceed the size limit of managed policies. Usually, return one.

    If a statement exceeds the limit, divides its resources among several statements. This does not affect requests for
    several resources, because IAM authorizes each resource separately. Raises ValueError if a statement with a single
    resource is too long.
    """
    documents: list[list[Statement]] = [[]]
    # Fill one document after the other, so that statements keep their order.
    for statement in (piece for whole in policy for piece in _numbered(whole)):
        if characters([*documents[-1], statement]) > MANAGED_POLICY_CHARACTERS:
            documents.append([])
        documents[-1].append(statement)
    return documents


def _numbered(statement: Statement) -> Sequence[Statement]:
    """Return the statement or, if it is too long, several pieces. Each piece gets its own Sid, as IAM requires."""
    # Measure with four digits after the Sid, so that a piece still fits when it gets its number.
    pieces = [*_pieces(replace(statement, sid=f"{statement.sid}{_SID_ROOM}"))]
    if len(pieces) == 1:
        return [statement]
    return [replace(piece, sid=f"{statement.sid}{number}") for number, piece in enumerate(pieces, start=1)]


def _pieces(statement: Statement) -> Iterator[Statement]:
    """Divide the resources of a statement among several statements, each short enough for its own document."""
    if characters([statement]) <= MANAGED_POLICY_CHARACTERS:
        yield statement
        return
    half = len(statement.resources) // 2
    if half == 0:
        raise ValueError(f"a statement about {statement.resources[0]} exceeds {MANAGED_POLICY_CHARACTERS} characters")
    for resources in (statement.resources[:half], statement.resources[half:]):
        yield from _pieces(replace(statement, resources=resources))


@dataclass(frozen=True, slots=True)
class LakeFormationGrant:
    """Lake Formation permissions on a resource, and the reason why the connector needs these permissions.

    If `grantable` is true, the connector also needs the grant option, to grant the permissions to others.
    """

    permissions: tuple[str, ...]
    resource: Resource
    why: str
    grantable: bool = False

    def command_line(self, principal: str, config: Config) -> str:
        """Return the AWS CLI command that grants the permissions to `principal`, the ARN of a user or role."""
        lines = CommandLines(config.glue_region or config.region, config.glue_catalog_id)
        return lines.grant(principal, self.permissions, self.resource, grantable=self.grantable)


_TAGGED = "assign LF-Tags to databases and tables that other principals created"


def lake_formation_grants(config: Config, scope: Scope) -> Iterator[LakeFormationGrant]:
    """Yield the grants that the connector needs if Lake Formation governs its catalog and data location.

    The connector needs no grants on resources that it creates, because a creator has all permissions on a resource
    (https://docs.aws.amazon.com/lake-formation/latest/dg/implicit-permissions.html). The connector drops only tables
    that it has created itself. It therefore needs DROP only to assign LF-Tags.
    """
    tags = Policy.from_config(config).location().tag_values.keys()
    yield LakeFormationGrant(("CREATE_DATABASE",), Catalog(), "create missing databases")
    if tags:
        yield LakeFormationGrant(("CREATE_LF_TAG",), Catalog(), "create missing LF-Tags")
    granted = _granted_to_others(config, None, on_tables=False) & LOCATION_PERMISSIONS
    for folder in scope.folders:
        # Use `folder.arn` instead of `scope.s3`, because a grant applies to one location, and cannot contain wildcards.
        location = DataLocation(folder.arn(scope.partition))
        yield LakeFormationGrant(
            ("DATA_LOCATION_ACCESS",), location, "create tables at this location", grantable=bool(granted)
        )
    for name in scope.databases:
        yield from _on_database(name, config)
    for key in tags:
        tag = LfTag(key, ("*",))
        yield LakeFormationGrant(
            ("ALTER", "ASSOCIATE", "DESCRIBE"), tag, "assign and extend an LF-Tag that another principal created"
        )


def _on_database(name: str, config: Config) -> Iterator[LakeFormationGrant]:
    database, tables = Database(name), AllTables(name)
    yield LakeFormationGrant(("CREATE_TABLE", "DESCRIBE"), database, "create tables")
    if config.lake_formation.tags:
        yield LakeFormationGrant(tuple(sorted(TO_TAG_DATABASE)), database, _TAGGED, grantable=True)
    yield from _grantable(_granted_to_others(config, name, on_tables=False) - LOCATION_PERMISSIONS, database)
    yield LakeFormationGrant(
        ("ALTER", "DELETE", "DESCRIBE", "INSERT"), tables, "write to tables that other principals created"
    )
    if any(tagged.database in (None, name) for tagged in config.lake_formation.table_tags):
        yield LakeFormationGrant(tuple(sorted(TO_TAG_TABLE)), tables, _TAGGED, grantable=True)
    yield from _grantable(_granted_to_others(config, name, on_tables=True), tables)


def _grantable(permissions: Collection[str], resource: Resource) -> Iterator[LakeFormationGrant]:
    if permissions:
        reason = "grant `lake_formation.grants` on databases and tables that other principals created"
        yield LakeFormationGrant(tuple(sorted(permissions)), resource, reason, grantable=True)


def _granted_to_others(config: Config, database: str | None, *, on_tables: bool) -> frozenset[str]:
    """Return the permissions that `lake_formation.grants` grants to other principals.

    With `on_tables`, returns the permissions on tables, otherwise those on databases and the data location. If
    `database` is not None, returns only permissions that apply to this database.
    """
    return frozenset(
        permission
        for grant in config.lake_formation.grants
        if (grant.table is not None) == on_tables and (database is None or grant.database in (None, database))
        for permission in grant.permissions
    )
