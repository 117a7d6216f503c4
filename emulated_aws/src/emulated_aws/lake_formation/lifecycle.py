"""Update Lake Formation's state after Glue has created or dropped a database or a table."""

from collections.abc import Iterable
from typing import Any

from emulated_aws.lake_formation.grants import give
from emulated_aws.lake_formation.model import resources
from emulated_aws.lake_formation.model.effective import ON_DATABASE, ON_TABLE
from emulated_aws.lake_formation.model.resources import Database, Resource, Table
from emulated_aws.lake_formation.model.state import Lake, lock


def created(lake: Lake, resource: Database | Table, defaults: Iterable[Any], creator: str | None) -> None:
    """Grant the default permissions on a new resource. Grant the creator, if known, all permissions with grant option.

    https://docs.aws.amazon.com/lake-formation/latest/dg/implicit-permissions.html
    """
    with lock:
        for default in defaults:
            give(lake, default["Principal"]["DataLakePrincipalIdentifier"], resource, default["Permissions"])
        if creator is not None:
            everything = ON_DATABASE if isinstance(resource, Database) else ON_TABLE
            give(lake, creator, resource, everything, everything)


def dropped(lake: Lake, resource: Database | Table) -> None:
    """Delete the grants, LF-Tags and opt-ins on a dropped table, or on a dropped database and its tables."""
    with lock:
        for held in [key for key in lake.grants if _in(key[1], resource)]:
            del lake.grants[held]
        for tagged in [key for key in lake.assigned if _in(key, resource)]:
            del lake.assigned[tagged]
        for opted in [key for key in lake.opt_ins if _in(key[1], resource)]:
            del lake.opt_ins[opted]


def _in(held: Resource, dropped: Database | Table) -> bool:
    if isinstance(held, Database):
        return held == dropped
    if not isinstance(held, Table | resources.Columns | resources.Column) or held.catalog != dropped.catalog:
        return False
    if isinstance(dropped, Database):
        return held.database == dropped.name
    table = held.name if isinstance(held, Table) else held.table
    return (held.database, table) == (dropped.database, dropped.name)
