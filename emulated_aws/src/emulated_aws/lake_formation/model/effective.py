"""Determine the inherited LF-Tags of a resource, and the effective permissions of principals on a resource.

https://docs.aws.amazon.com/lake-formation/latest/dg/lf-permissions-reference.html
"""

from collections.abc import Collection

from emulated_aws.lake_formation.model import resources
from emulated_aws.lake_formation.model.resources import Resource
from emulated_aws.lake_formation.model.state import Lake

ON_DATABASE = frozenset({"ALL", "ALTER", "CREATE_TABLE", "DESCRIBE", "DROP"})
ON_TABLE = frozenset({"ALL", "ALTER", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT"})


def tags_of(lake: Lake, resource: resources.Database | resources.Table | resources.Column) -> dict[str, str]:
    """Return the LF-Tags of a resource, including inherited ones.

    A column's own LF-Tags override those of its table, which override those of the database.
    """
    own = lake.assigned.get(resource, {})
    match resource:
        case resources.Database():
            return dict(own)
        case resources.Table(catalog, database, _):
            return {**tags_of(lake, resources.Database(catalog, database)), **own}
        case resources.Column(catalog, database, table, _):
            return {**tags_of(lake, resources.Table(catalog, database, table)), **own}


def permissions_on(
    lake: Lake, principals: Collection[str], resource: Resource, *, grantable: bool = False
) -> frozenset[str]:
    """Return the permissions that any of the principals has on a resource.

    A permission can be granted on the resource itself, on all tables of the database, or on LF-Tags. ALL includes all
    permissions for the type of the resource. SELECT on a table applies to all columns of the table. SELECT on some
    columns applies only to these columns. A permission on a data location applies to all folders below it. With
    `grantable`, returns only permissions with the grant option.
    """
    permissions: set[str] = set()
    for (principal, held), grant in lake.grants.items():
        if principal in principals and _covers(lake, held, resource):
            permissions |= grant.grantable if grantable else grant.permissions
    if "ALL" in permissions:
        permissions |= ON_DATABASE if isinstance(resource, resources.Database) else ON_TABLE
    return frozenset(permissions)


def _covers(lake: Lake, held: Resource, asked: Resource) -> bool:
    match held, asked:
        case resources.DataLocation(), resources.DataLocation():
            return held.catalog == asked.catalog and (asked.arn == held.arn or asked.arn.startswith(f"{held.arn}/"))
        case resources.Table(catalog, database, None), resources.Table():
            return (asked.catalog, asked.database) == (catalog, database)
        case resources.Table(), resources.Column():
            # ALL on a table includes SELECT.
            return _covers(lake, held, resources.Table(asked.catalog, asked.database, asked.table))
        case resources.Columns(catalog, database, table, excluded), resources.Table():
            named = (asked.catalog, asked.database) == (catalog, database) and table in (None, asked.name)
            return named and not excluded
        case resources.Columns(catalog, database, table, excluded), resources.Column():
            named = (asked.catalog, asked.database) == (catalog, database) and table in (None, asked.table)
            return named and asked.name not in excluded
        case resources.LFTag(catalog, key, values), resources.LFTag():
            return (asked.catalog, asked.key) == (catalog, key) and ("*" in values or asked.values <= values)
        case resources.LFTagPolicy(), resources.Database() | resources.Table() | resources.Column():
            return _matches(lake, held, asked)
    return held == asked


def _matches(
    lake: Lake, policy: resources.LFTagPolicy, asked: resources.Database | resources.Table | resources.Column
) -> bool:
    """Return whether a resource has one of the policy's values for each key of the policy."""
    of_type = (policy.kind == "DATABASE") == isinstance(asked, resources.Database)
    if asked.catalog != policy.catalog or not of_type:
        return False
    tags = tags_of(lake, asked)
    return all(key in tags and ("*" in values or tags[key] in values) for key, values in policy.expression)
