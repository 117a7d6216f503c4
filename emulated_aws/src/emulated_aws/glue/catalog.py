"""Correct moto's Glue where it differs from AWS's documentation: names, versions, batch sizes and partitions."""

import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.glue.responses import GlueResponse

Operation = Callable[[GlueResponse], Any]


def change(operation: str, changed: Callable[[Operation, GlueResponse], Any]) -> None:
    """Replace an operation of moto's Glue by `changed`, which receives the original operation and the request."""
    original = getattr(GlueResponse, operation)

    def answer(request: GlueResponse) -> Any:
        return changed(original, request)

    setattr(GlueResponse, operation, answer)


def correct_catalog() -> None:
    """Make moto's Glue answer as AWS documents."""
    GlueResponse.parameters = property(_parameters)  # type: ignore[assignment,method-assign]
    change("update_table", partial(_update_table, threading.Lock()))
    for operation, (member, limit) in LIMITS.items():
        change(operation, partial(_limited, member, limit))
    for operation in ("create_partition", "batch_create_partition", "batch_update_partition"):
        change(operation, _with_a_value_for_each_key)
    change("get_partitions", _page_of_partitions)


# Glue stores the names of databases and tables in lower case, and finds names in any letter case.
# https://docs.aws.amazon.com/glue/latest/webapi/API_DatabaseInput.html,
# https://docs.aws.amazon.com/glue/latest/webapi/API_TableInput.html

_NAMED = frozenset({"GetDatabase", "UpdateDatabase", "DeleteDatabase", "GetTable", "DeleteTable"})
"""The operations whose `Name` is a database or a table. The `Name` of other operations is a job or a crawler, for
example."""


def _parameters(request: GlueResponse) -> dict[str, Any]:
    kept: dict[str, Any] | None = vars(request).get("_folded")
    if kept is None:
        kept = vars(request)["_folded"] = _folded(json.loads(request.body), request._get_action())
    return kept


def _folded(parameters: dict[str, Any], operation: str) -> dict[str, Any]:
    names = ("DatabaseName", "TableName", "Name") if operation in _NAMED else ("DatabaseName", "TableName")
    inputs = [parameters[member] for member in ("DatabaseInput", "TableInput") if member in parameters]
    for holder, members in [(parameters, names), *((given, ("Name",)) for given in inputs)]:
        for member in members:
            if isinstance(holder.get(member), str):
                holder[member] = holder[member].lower()
    if operation == "BatchDeleteTable":
        parameters["TablesToDelete"] = [name.lower() for name in parameters["TablesToDelete"]]
    return parameters


# UpdateTable's VersionId is "the version ID at which to update the table contents". If it is stale, Glue answers with
# ConcurrentModificationException: https://docs.aws.amazon.com/glue/latest/webapi/API_UpdateTable.html


def _update_table(lock: threading.Lock, unconditional: Operation, request: GlueResponse) -> Any:
    asked, database = request.parameters.get("VersionId"), request.parameters["DatabaseName"]
    with lock:
        table = request.glue_backend.get_table(database, request.parameters["TableInput"]["Name"])
        if asked not in (None, table.as_dict()["VersionId"]):
            raise JsonRESTError("ConcurrentModificationException", f"Update table failed: version {asked} is old")
        return unconditional(request)


LIMITS: Mapping[str, tuple[str, int]] = {
    "batch_create_partition": ("PartitionInputList", 100),
    "batch_delete_partition": ("PartitionsToDelete", 25),
    "batch_delete_table": ("TablesToDelete", 100),
    "batch_get_partition": ("PartitionsToGet", 1000),
    "batch_update_partition": ("Entries", 100),
}
"""The maximum number of members in a batch, from https://docs.aws.amazon.com/glue/latest/webapi/API_BatchCreatePartition.html
and the pages of the other operations: "Array Members: Maximum number of … items"."""


def _limited(member: str, limit: int, unlimited: Operation, request: GlueResponse) -> Any:
    if len(request.parameters[member]) > limit:
        raise JsonRESTError("InvalidInputException", f"{member} has more than {limit} members")
    return unlimited(request)


# If a partition does not have one value per partition key, Glue answers with InvalidInputException:
# https://docs.aws.amazon.com/glue/latest/webapi/API_CreatePartition.html. A page contains at most MaxResults
# partitions. With ExcludeColumnSchema, these partitions contain no columns:
# https://docs.aws.amazon.com/glue/latest/webapi/API_GetPartitions.html.

_PAGE = 100
"""The default number of partitions per page. AWS does not document this number, so clients must not rely on it."""


def _with_a_value_for_each_key(original: Operation, request: GlueResponse) -> Any:
    given = request.parameters
    table = request.glue_backend.get_table(given["DatabaseName"], given["TableName"]).as_dict()
    keys = table.get("PartitionKeys") or []
    for partition in _partitions(given):
        values = partition.get("Values", [])
        if len(values) != len(keys) or not all(isinstance(value, str) for value in values):
            message = "The number of partition keys do not match the number of partition values"
            raise JsonRESTError("InvalidInputException", message)
    return original(request)


def _partitions(parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "Entries" in parameters:
        return [entry["PartitionInput"] for entry in parameters["Entries"]]
    return parameters.get("PartitionInputList") or [parameters["PartitionInput"]]


def _page_of_partitions(original: Operation, request: GlueResponse) -> ActionResult:
    given, partitions = request.parameters, original(request).result["Partitions"]
    start = int(given.get("NextToken") or 0)
    end = start + min(given.get("MaxResults") or _PAGE, 1000)
    page = [
        _without_columns(partition) if given.get("ExcludeColumnSchema") else partition
        for partition in partitions[start:end]
    ]
    return ActionResult({"Partitions": page, **({"NextToken": str(end)} if end < len(partitions) else {})})


def _without_columns(partition: Mapping[str, Any]) -> dict[str, Any]:
    storage = partition.get("StorageDescriptor", {})
    return {**partition, "StorageDescriptor": {name: value for name, value in storage.items() if name != "Columns"}}
