"""Enforce Lake Formation's permissions for Glue's operations on databases and tables, in addition to IAM's.

The error messages are AWS's, as clients quote them ("Insufficient Lake Formation permission(s): Required Create
Database on Catalog"). https://docs.aws.amazon.com/lake-formation/latest/dg/lf-permissions-reference.html
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.glue.responses import GlueResponse

from emulated_aws.caller import caller_arn
from emulated_aws.glue.catalog import Operation, change
from emulated_aws.lake_formation.model.resources import Catalog, Database, Resource, Table
from emulated_aws.lake_formation.model.standing import Standing
from emulated_aws.lake_formation.model.state import lake_of, lock

Rule = Callable[[GlueResponse, Standing], None]


def enforce_permissions() -> None:
    """Make moto's Glue refuse requests without the required Lake Formation permission, and filter its lists.

    Lists contain only databases and tables that the caller may see. If the caller is unknown (`caller_arn` is None),
    Glue refuses and filters nothing.
    """
    for operation, rule in RULES.items():
        change(operation, partial(_ask, rule))
    change("get_databases", partial(_show, "DatabaseList", _sees_database))
    change("get_tables", partial(_show, "TableList", _sees_table))


def _ask(rule: Rule, original: Operation, request: GlueResponse) -> Any:
    standing = _standing(request)
    if standing is not None:
        with lock:
            rule(request, standing)
    return original(request)


def _show(member: str, sees: Callable[[Standing, Any], bool], original: Operation, request: GlueResponse) -> Any:
    answered, standing = original(request), _standing(request)
    if standing is None:
        return answered
    with lock:
        return ActionResult({member: [entry for entry in answered.result[member] if sees(standing, entry)]})


def _sees_database(standing: Standing, entry: Mapping[str, Any]) -> bool:
    return standing.sees_database(Database(standing.catalog, entry["Name"]))


def _sees_table(standing: Standing, entry: Mapping[str, Any]) -> bool:
    return standing.sees_table(Table(standing.catalog, entry["DatabaseName"], entry["Name"]))


def _standing(request: GlueResponse) -> Standing | None:
    caller = caller_arn.get()
    if caller is None:
        return None
    catalog = str(request.parameters.get("CatalogId") or request.current_account)
    return Standing(lake_of(request.current_account, request.region), catalog, caller)


def _require(standing: Standing, resource: Resource, name: str, *permissions: str) -> None:
    """Raise AccessDeniedException if the caller has none of these permissions on the resource.

    The message names the resource `name`.
    """
    if standing.permissions(resource).isdisjoint(permissions):
        wanted = permissions[0].replace("_", " ").title()
        raise _denied(f"Insufficient Lake Formation permission(s): Required {wanted} on {name}")


def _denied(sentence: str) -> JsonRESTError:
    return JsonRESTError("AccessDeniedException", sentence)


def _create_database(request: GlueResponse, standing: Standing) -> None:
    if not standing.administers:
        _require(standing, Catalog(standing.catalog), "Catalog", "CREATE_DATABASE")
    _require_location(standing, request.parameters["DatabaseInput"].get("LocationUri"), None)


def _get_database(request: GlueResponse, standing: Standing) -> None:
    name = request.parameters["Name"]
    if standing.sees_database(Database(standing.catalog, name)):
        return
    # AWS does not reveal to a caller without CREATE_DATABASE that a database does not exist:
    # https://github.com/ExpediaGroup/waggle-dance/pull/359
    may_create = "CREATE_DATABASE" in standing.permissions(Catalog(standing.catalog))
    if name in request.glue_backend.databases or not may_create:
        raise _denied(f"Insufficient Lake Formation permission(s): Required Describe on {name}")


def _on_database(permission: str) -> Rule:
    def rule(request: GlueResponse, standing: Standing) -> None:
        name = request.parameters["Name"]
        _require(standing, Database(standing.catalog, name), name, permission)

    return rule


def _create_table(request: GlueResponse, standing: Standing) -> None:
    database = request.parameters["DatabaseName"]
    _require(standing, Database(standing.catalog, database), database, "CREATE_TABLE")
    _require_location_of(request, standing, request.parameters["TableInput"])


def _update_table(request: GlueResponse, standing: Standing) -> None:
    table = request.parameters["TableInput"]["Name"]
    _require(standing, Table(standing.catalog, request.parameters["DatabaseName"], table), table, "ALTER")
    _require_location_of(request, standing, request.parameters["TableInput"])


def _get_table(request: GlueResponse, standing: Standing) -> None:
    database, name = request.parameters["DatabaseName"], _table_name(request)
    if standing.sees_table(Table(standing.catalog, database, name)):
        return
    known = request.glue_backend.databases.get(database)
    if known is None:
        may_create = "CREATE_DATABASE" in standing.permissions(Catalog(standing.catalog))
    else:
        may_create = "CREATE_TABLE" in standing.permissions(Database(standing.catalog, database))
    if not may_create or (known is not None and name in known.tables):
        raise _denied(f"Insufficient Lake Formation permission(s): Required Describe on {name}")


def _on_table(*permissions: str) -> Rule:
    def rule(request: GlueResponse, standing: Standing) -> None:
        name = _table_name(request)
        _require(standing, Table(standing.catalog, request.parameters["DatabaseName"], name), name, *permissions)

    return rule


def _drop_tables(request: GlueResponse, standing: Standing) -> None:
    for name in request.parameters["TablesToDelete"]:
        _require(standing, Table(standing.catalog, request.parameters["DatabaseName"], name), name, "DROP")


def _create_partitions(request: GlueResponse, standing: Standing) -> None:
    _on_table("ALTER", "INSERT")(request, standing)
    given = request.parameters
    for partition in given.get("PartitionInputList") or [given["PartitionInput"]]:
        _require_location_of(request, standing, partition)


def _require_location_of(request: GlueResponse, standing: Standing, given: Mapping[str, Any]) -> None:
    database = request.glue_backend.databases.get(request.parameters["DatabaseName"])
    below = database.input.get("LocationUri") if database is not None else None
    _require_location(standing, (given.get("StorageDescriptor") or {}).get("Location"), below)


def _require_location(standing: Standing, location: str | None, database: str | None) -> None:
    if location and not standing.may_point_to(location, database):
        raise _denied(f"Insufficient Lake Formation permission(s) on {location}")


def _table_name(request: GlueResponse) -> str:
    return str(request.parameters.get("TableName") or request.parameters["Name"])


RULES: Mapping[str, Rule] = {
    "create_database": _create_database,
    "get_database": _get_database,
    "update_database": _on_database("ALTER"),
    "delete_database": _on_database("DROP"),
    "create_table": _create_table,
    "get_table": _get_table,
    "get_table_version": _get_table,
    "get_table_versions": _get_table,
    "update_table": _update_table,
    "delete_table": _on_table("DROP"),
    "batch_delete_table": _drop_tables,
    "get_partition": _get_table,
    "get_partitions": _get_table,
    "batch_get_partition": _get_table,
    "create_partition": _create_partitions,
    "batch_create_partition": _create_partitions,
    "update_partition": _on_table("ALTER", "INSERT"),
    "batch_update_partition": _on_table("ALTER", "INSERT"),
    "delete_partition": _on_table("ALTER", "DELETE"),
    "batch_delete_partition": _on_table("ALTER", "DELETE"),
}
