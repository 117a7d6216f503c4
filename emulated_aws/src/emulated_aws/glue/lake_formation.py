"""Grant Lake Formation permissions on new databases and tables, and remove those on dropped ones.

CreateDatabase and CreateTable grant the permissions in the data lake settings. A database can override the settings for
its tables: https://docs.aws.amazon.com/glue/latest/webapi/API_DatabaseInput.html (CreateTableDefaultPermissions)
"""

from collections.abc import Callable
from typing import Any

from moto.glue.responses import GlueResponse

from emulated_aws.caller import caller_arn
from emulated_aws.glue.catalog import Operation, change
from emulated_aws.lake_formation.lifecycle import created, dropped
from emulated_aws.lake_formation.model.resources import Database, Table
from emulated_aws.lake_formation.model.state import Lake, lake_of


def tell_lake_formation() -> None:
    """Make moto's Glue notify Lake Formation of each database and table that it creates or drops."""
    _run_after("create_database", _database_created)
    _run_after("create_table", _table_created)
    change("update_database", _keep_defaults)
    _run_after(
        "delete_database", lambda request: dropped(_lake(request), _database(request, request.parameters["Name"]))
    )
    _run_after("delete_table", lambda request: dropped(_lake(request), _table(request, request.parameters["Name"])))
    _run_after("batch_delete_table", _tables_dropped)


def _run_after(operation: str, follow: Callable[[GlueResponse], object]) -> None:
    """Call `follow` after each successful request for an operation."""

    def answer(original: Operation, request: GlueResponse) -> Any:
        answered = original(request)
        follow(request)
        return answered

    change(operation, answer)


def _keep_defaults(original: Operation, request: GlueResponse) -> Any:
    """Make UpdateDatabase keep the default permissions for tables, unless the request contains other ones.

    AWS does not document this case.
    """
    known = request.glue_backend.databases.get(request.parameters["Name"])
    if known is not None:
        defaults = known.input.get("CreateTableDefaultPermissions")
        request.parameters["DatabaseInput"].setdefault("CreateTableDefaultPermissions", defaults)
    return original(request)


def _database_created(request: GlueResponse) -> None:
    database = _database(request, request.parameters["DatabaseInput"]["Name"])
    settings = _lake(request).settings[database.catalog]
    entry = request.glue_backend.get_database(database.name).input
    if entry.get("CreateTableDefaultPermissions") is None:
        entry["CreateTableDefaultPermissions"] = settings["CreateTableDefaultPermissions"]
    created(_lake(request), database, settings["CreateDatabaseDefaultPermissions"], caller_arn.get())


def _table_created(request: GlueResponse) -> None:
    table = _table(request, request.parameters["TableInput"]["Name"])
    entry = request.glue_backend.get_database(table.database).input
    created(_lake(request), table, entry.get("CreateTableDefaultPermissions") or (), caller_arn.get())


def _tables_dropped(request: GlueResponse) -> None:
    for name in request.parameters["TablesToDelete"]:
        dropped(_lake(request), _table(request, name))


def _lake(request: GlueResponse) -> Lake:
    return lake_of(request.current_account, request.region)


def _catalog(request: GlueResponse) -> str:
    return str(request.parameters.get("CatalogId") or request.current_account)


def _database(request: GlueResponse, name: str) -> Database:
    return Database(_catalog(request), name)


def _table(request: GlueResponse, name: str) -> Table:
    return Table(_catalog(request), request.parameters["DatabaseName"], name)
