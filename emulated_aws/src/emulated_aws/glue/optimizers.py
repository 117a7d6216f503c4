"""The table optimizers of Glue, which moto does not implement.

https://docs.aws.amazon.com/glue/latest/webapi/API_CreateTableOptimizer.html and the pages of the other operations. An
optimizer belongs to an Iceberg table. Glue deletes the optimizer with the table.
"""

from collections.abc import Mapping
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult, EmptyResult
from moto.glue.models import FakeTable
from moto.glue.responses import GlueResponse

TYPES = frozenset({"compaction", "retention", "orphan_file_deletion"})
_MEMBER = "table_optimizers"


def keep_optimizers() -> None:
    """Add the operations that create, return, change and delete table optimizers to moto's Glue."""
    GlueResponse.create_table_optimizer = _create  # type: ignore[attr-defined]
    GlueResponse.update_table_optimizer = _update  # type: ignore[attr-defined]
    GlueResponse.delete_table_optimizer = _delete  # type: ignore[attr-defined]
    GlueResponse.get_table_optimizer = _get  # type: ignore[attr-defined]
    GlueResponse.batch_get_table_optimizer = _batch_get  # type: ignore[attr-defined]


def _create(request: GlueResponse) -> EmptyResult:
    given = request.parameters
    optimizers = _table_optimizers(_table(request, given["DatabaseName"], given["TableName"]))
    if _type(given["Type"]) in optimizers:
        raise JsonRESTError("AlreadyExistsException", f"Optimizer of type {given['Type']} already exists.")
    optimizers[given["Type"]] = _configuration(given)
    return EmptyResult()


def _update(request: GlueResponse) -> EmptyResult:
    given = request.parameters
    _optimizer(request, given["DatabaseName"], given["TableName"], given["Type"])
    _table_optimizers(_table(request, given["DatabaseName"], given["TableName"]))[given["Type"]] = _configuration(given)
    return EmptyResult()


def _delete(request: GlueResponse) -> EmptyResult:
    given = request.parameters
    _optimizer(request, given["DatabaseName"], given["TableName"], given["Type"])
    del _table_optimizers(_table(request, given["DatabaseName"], given["TableName"]))[given["Type"]]
    return EmptyResult()


def _get(request: GlueResponse) -> ActionResult:
    given = request.parameters
    optimizer = _optimizer(request, given["DatabaseName"], given["TableName"], given["Type"])
    where = {name: given[name] for name in ("CatalogId", "DatabaseName", "TableName")}
    return ActionResult({**where, "TableOptimizer": optimizer})


def _batch_get(request: GlueResponse) -> ActionResult:
    optimizers, failures = [], []
    for entry in request.parameters["Entries"]:
        try:
            optimizer = _optimizer(request, entry["databaseName"], entry["tableName"], entry["type"])
        except JsonRESTError as error:
            failures.append({**entry, "error": {"ErrorCode": error.error_type, "ErrorMessage": error.message}})
        else:
            where = {name: entry[name] for name in ("catalogId", "databaseName", "tableName")}
            optimizers.append({**where, "tableOptimizer": optimizer})
    return ActionResult({"TableOptimizers": optimizers, "Failures": failures})


def _table(request: GlueResponse, database: str, name: str) -> FakeTable:
    # moto raises EntityNotFoundException.
    return request.glue_backend.get_table(database.lower(), name.lower())


def _table_optimizers(table: FakeTable) -> dict[str, dict[str, Any]]:
    optimizers: dict[str, dict[str, Any]] = table.__dict__.setdefault(_MEMBER, {})
    return optimizers


def _optimizer(request: GlueResponse, database: str, table: str, type_: str) -> dict[str, Any]:
    configuration = _table_optimizers(_table(request, database, table)).get(_type(type_))
    if configuration is None:
        raise JsonRESTError("EntityNotFoundException", f"Optimizer of type {type_} not found.")
    return {"type": type_, "configuration": configuration, "configurationSource": "table"}


def _type(name: str) -> str:
    if name not in TYPES:
        raise JsonRESTError("ValidationException", f"{name} is no type of table optimizer")
    return name


def _configuration(given: Mapping[str, Any]) -> dict[str, Any]:
    configuration: dict[str, Any] = given["TableOptimizerConfiguration"]
    if not configuration.get("roleArn"):
        raise JsonRESTError("ValidationException", "roleArn is required")
    return configuration
