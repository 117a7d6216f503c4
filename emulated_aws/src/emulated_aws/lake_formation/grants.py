"""The explicit permissions of principals on resources.

A principal has one entry for each resource. Grants add permissions to this entry, and revocations remove them:
https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_GrantPermissions.html
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from emulated_aws.lake_formation.model import resources
from emulated_aws.lake_formation.model.authorization import require
from emulated_aws.lake_formation.model.call import Call, Json, Refused, invalid
from emulated_aws.lake_formation.model.effective import ON_DATABASE, ON_TABLE
from emulated_aws.lake_formation.model.entities import resources_of
from emulated_aws.lake_formation.model.resources import Resource
from emulated_aws.lake_formation.model.state import Grant, Lake

PER_BATCH = 20
"""https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_BatchGrantPermissions.html"""

PERMISSIONS: Mapping[type[Resource], frozenset[str]] = {
    resources.Catalog: frozenset(
        {"ALL", "ALTER", "CREATE_CATALOG", "CREATE_DATABASE", "CREATE_LF_TAG", "CREATE_LF_TAG_EXPRESSION"}
        | {"DESCRIBE", "DROP", "SUPER_USER"}
    ),
    resources.Database: ON_DATABASE,
    resources.Table: ON_TABLE,
    resources.Columns: frozenset({"SELECT"}),
    resources.Column: frozenset({"SELECT"}),
    resources.DataLocation: frozenset({"DATA_LOCATION_ACCESS"}),
    resources.LFTag: frozenset({"ALTER", "ASSOCIATE", "DESCRIBE", "DROP", "GRANT_WITH_LF_TAG_EXPRESSION"}),
}
"""The permissions that can be granted on each type of resource:
https://docs.aws.amazon.com/lake-formation/latest/dg/lf-permissions-reference.html"""

_PRINCIPAL = re.compile(
    r"IAM_ALLOWED_PRINCIPALS|\d{12}(:IAMPrincipals)?|ALLIAMPrincipals|"
    r"arn:aws[\w-]*:(iam|sts|quicksight|identitystore|organizations|glue)::?\S*:\S+"
)


def grant_permissions(call: Call) -> Json:
    principal, targets, permissions, grantable = _asked(call)
    for resource in targets:
        give(call.lake, principal, resource, permissions, grantable)
    return {}


def revoke_permissions(call: Call) -> Json:
    """Revoke permissions. If the principal lacks one of them, refuse the whole request."""
    principal, targets, permissions, grantable = _asked(call)
    parts = [part for resource in targets for part in _parts(resource, permissions, grantable)]
    for resource, taken, passed in parts:
        held = call.lake.grants.get((principal, resource), Grant())
        missing = (taken - held.permissions) | (passed - held.grantable)
        if missing:
            raise invalid(f"No permissions revoked. Grantee does not have: {sorted(missing)}")
    for resource, taken, passed in parts:
        held = call.lake.grants[principal, resource]
        held.permissions -= taken
        held.grantable -= taken | passed
        if not held.permissions:
            del call.lake.grants[principal, resource]
    return {}


def batch_grant_permissions(call: Call) -> Json:
    return _batch(call, "GrantPermissions", grant_permissions)


def batch_revoke_permissions(call: Call) -> Json:
    return _batch(call, "RevokePermissions", revoke_permissions)


def give(
    lake: Lake, principal: str, resource: Resource, permissions: Iterable[str], grantable: Iterable[str] = ()
) -> None:
    """Add permissions of a principal on a resource. Store SELECT on a table as SELECT on the table's columns."""
    for part, given, passed in _parts(resource, frozenset(permissions), frozenset(grantable)):
        held = lake.grants.setdefault((principal, part), Grant())
        held.permissions |= given
        held.grantable |= passed


def _parts(
    resource: Resource, permissions: frozenset[str], grantable: frozenset[str]
) -> list[tuple[Resource, frozenset[str], frozenset[str]]]:
    """Divide permissions on a table as AWS's lists show them: SELECT on all columns, the others on the table.

    https://docs.aws.amazon.com/lake-formation/latest/dg/upgrade-glue-lake-formation-step4.html contains such a list.
    Terraform's AWS provider contains more of them (internal/service/lakeformation/filter.go).
    """
    if not isinstance(resource, resources.Table):
        return [(resource, permissions, grantable)]
    columns = resources.Columns(resource.catalog, resource.database, resource.name)
    select = frozenset({"SELECT"})
    parts: list[tuple[Resource, frozenset[str], frozenset[str]]] = [
        (resource, permissions - select, grantable - select),
        (columns, permissions & select, grantable & select),
    ]
    return [part for part in parts if part[1]]


def _asked(call: Call) -> tuple[str, tuple[Resource, ...], frozenset[str], frozenset[str]]:
    """Return the principal, the resources, the permissions, and the permissions with the grant option of a request.

    The permissions with the grant option must be "a subset" of the permissions.
    """
    principal = call.principal or ""
    if not _PRINCIPAL.fullmatch(principal):
        raise invalid("Invalid principal")
    permissions = frozenset(call.body.get("Permissions") or ())
    grantable = frozenset(call.body.get("PermissionsWithGrantOption") or ())
    if not permissions or not grantable <= permissions:
        raise invalid("Permissions modification is invalid.")
    targets = resources_of(call)
    for resource in targets:
        allowed = PERMISSIONS.get(type(resource)) or _of_policy(resource)
        if not permissions <= allowed:
            raise invalid(f"Permissions {sorted(permissions - allowed)} are not valid for the resource type.")
    return principal, targets, permissions, grantable


def _of_policy(resource: Resource) -> frozenset[str]:
    assert isinstance(resource, resources.LFTagPolicy)
    return ON_DATABASE if resource.kind == "DATABASE" else ON_TABLE


def _batch(call: Call, operation: str, apply: Callable[[Call], Any]) -> Json:
    """Apply the entries of a batch one at a time. Return a failure for each entry that is refused."""
    entries = call.body["Entries"]
    if len(entries) > PER_BATCH:
        raise invalid(f"Entries has more than {PER_BATCH} members")
    if len({entry["Id"] for entry in entries}) < len(entries):
        raise invalid("Ids of entries must be unique")
    failures = []
    for entry in entries:
        try:
            request = Call(call.account, call.region, {"CatalogId": call.catalog, **entry})
            require(operation, request)
            apply(request)
        except Refused as refusal:
            failures.append({"RequestEntry": entry, "Error": refusal.detail()})
    return {"Failures": failures}
