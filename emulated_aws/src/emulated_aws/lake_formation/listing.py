"""Lists of explicit permissions.

https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_ListPermissions.html
"""

from collections.abc import Callable, Mapping

from emulated_aws.caller import caller_arn
from emulated_aws.lake_formation.model import resources
from emulated_aws.lake_formation.model.call import Call, Json, invalid
from emulated_aws.lake_formation.model.resources import Resource
from emulated_aws.lake_formation.model.standing import Standing
from emulated_aws.lake_formation.model.state import Grant

_TYPES: Mapping[str, Callable[[Resource], bool]] = {
    "CATALOG": lambda resource: isinstance(resource, resources.Catalog),
    "DATABASE": lambda resource: isinstance(resource, resources.Database),
    "TABLE": lambda resource: isinstance(resource, resources.Table | resources.Columns | resources.Column),
    "DATA_LOCATION": lambda resource: isinstance(resource, resources.DataLocation),
    "LF_TAG": lambda resource: isinstance(resource, resources.LFTag),
    "LF_TAG_POLICY": lambda resource: isinstance(resource, resources.LFTagPolicy),
    "LF_TAG_POLICY_DATABASE": lambda resource: (
        isinstance(resource, resources.LFTagPolicy) and resource.kind == "DATABASE"
    ),
    "LF_TAG_POLICY_TABLE": lambda resource: isinstance(resource, resources.LFTagPolicy) and resource.kind == "TABLE",
}


def list_permissions(call: Call) -> Json:
    """Return the permissions of principals, filtered by principal, resource and type of resource.

    For a table, the list includes permissions on the table's columns. If the request also contains a principal, the
    list includes permissions on all tables of the database: "If both Principal and Resource parameters are provided,
    the response returns effective permissions".
    """
    wanted, principal = _resource(call), call.principal
    if principal is not None and wanted is None:
        # This is AWS's error message, as moto quotes it.
        raise invalid("Resource is mandatory if Principal is set in the input.")
    of_type = _TYPES.get(call.body.get("ResourceType") or "")
    grants = [
        (holder, resource, grant)
        for (holder, resource), grant in call.lake.grants.items()
        if resource.catalog == call.catalog
        and principal in (None, holder)
        and (of_type is None or of_type(resource))
        and (wanted is None or _about(resource, wanted, effective=principal is not None))
    ]
    return call.page("PrincipalResourcePermissions", _entries(_shown(call, grants)))


def _shown(call: Call, grants: list[tuple[str, Resource, Grant]]) -> list[tuple[str, Resource, Grant]]:
    """Omit the permissions that the caller does not have itself.

    The list is "filtered by the permissions of the caller. For example, if you are granted an ALTER permission, you
    are able to see only the principal permissions for ALTER."
    """
    caller = caller_arn.get()
    if caller is None or (standing := Standing(call.lake, call.catalog, caller)).administers:
        return grants
    shown = []
    for principal, resource, grant in grants:
        own = standing.permissions(resource)
        visible = Grant(grant.permissions & own, grant.grantable & own)
        if visible.permissions:
            shown.append((principal, resource, visible))
    return shown


def _resource(call: Call) -> Resource | None:
    if "Resource" not in call.body:
        return None
    try:
        requested = resources.read(call.body["Resource"], call.catalog)
    except ValueError as error:
        raise invalid(str(error)) from error
    if isinstance(requested[0], resources.Column | resources.Columns):
        # "This operation does not support getting privileges on a table with columns."
        raise invalid("Resource with columns is not supported; ask for the table.")
    return requested[0]


def _about(held: Resource, wanted: Resource, *, effective: bool) -> bool:
    match held, wanted:
        case resources.Column() | resources.Columns(), resources.Table(catalog, database, name):
            where = (held.catalog, held.database, held.table)
            return where == (catalog, database, name) or (effective and where == (catalog, database, None))
        case resources.Table(), resources.Table(catalog, database, _):
            return held == wanted or (effective and held == resources.Table(catalog, database, None))
        case resources.LFTag(), resources.LFTag():
            return (held.catalog, held.key) == (wanted.catalog, wanted.key)
    return held == wanted


def _entries(grants: list[tuple[str, Resource, Grant]]) -> list[Json]:
    """Return the entries of a list. Combine columns of a table with equal permissions into one entry."""
    columns: dict[tuple[str, resources.Table, frozenset[str], frozenset[str]], list[str]] = {}
    entries = []
    for principal, resource, grant in grants:
        if isinstance(resource, resources.Column):
            table = resources.Table(resource.catalog, resource.database, resource.table)
            key = (principal, table, frozenset(grant.permissions), frozenset(grant.grantable))
            columns.setdefault(key, []).append(resource.name)
        else:
            entries.append(_entry(principal, resource.wire(), grant))
    for (principal, table, permissions, grantable), names in columns.items():
        grant = Grant(set(permissions), set(grantable))
        entries.append(_entry(principal, resources.wire_columns(table, names), grant))
    return entries


def _entry(principal: str, resource: Json, grant: Grant) -> Json:
    return {
        "Principal": {"DataLakePrincipalIdentifier": principal},
        "Resource": resource,
        "Permissions": sorted(grant.permissions),
        "PermissionsWithGrantOption": sorted(grant.grantable),
    }
