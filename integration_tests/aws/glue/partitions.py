"""Partitions: one value for each key, and lists of them in pages.

A partition whose number of values is not that of the keys is refused with InvalidInputException:
https://docs.aws.amazon.com/glue/latest/webapi/API_CreatePartition.html. Pages have at most MaxResults partitions, which
have no columns if ExcludeColumnSchema says so: https://docs.aws.amazon.com/glue/latest/webapi/API_GetPartitions.html.
"""

from collections.abc import Mapping
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.glue.responses import GlueResponse

_PAGE = 100
"""How many partitions a page has by default. AWS does not say; clients must not rely on any number."""


def know_partitions() -> None:
    """Let moto's Glue compare values with keys, and answer in pages."""
    for operation in ("create_partition", "batch_create_partition", "batch_update_partition"):
        _compare(operation)
    _answer_in_pages()


def _compare(operation: str) -> None:
    original = getattr(GlueResponse, operation)

    def answer(request: GlueResponse) -> Any:
        given = request.parameters
        table = request.glue_backend.get_table(given["DatabaseName"], given["TableName"]).as_dict()
        keys = table.get("PartitionKeys") or []
        for partition in _given(given):
            values = partition.get("Values", [])
            if len(values) != len(keys) or not all(isinstance(value, str) for value in values):
                message = "The number of partition keys do not match the number of partition values"
                raise JsonRESTError("InvalidInputException", message)
        return original(request)

    setattr(GlueResponse, operation, answer)


def _given(parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "Entries" in parameters:
        return [entry["PartitionInput"] for entry in parameters["Entries"]]
    return parameters.get("PartitionInputList") or [parameters["PartitionInput"]]


def _answer_in_pages() -> None:
    original = GlueResponse.get_partitions

    def get_partitions(request: GlueResponse) -> ActionResult:
        given = request.parameters
        answered: Any = original(request).result
        found = answered["Partitions"]
        start = int(given.get("NextToken") or 0)
        end = start + min(given.get("MaxResults") or _PAGE, 1000)
        page = [_without_columns(each) if given.get("ExcludeColumnSchema") else each for each in found[start:end]]
        return ActionResult({"Partitions": page, **({"NextToken": str(end)} if end < len(found) else {})})

    GlueResponse.get_partitions = get_partitions  # type: ignore[assignment,method-assign]


def _without_columns(partition: Mapping[str, Any]) -> dict[str, Any]:
    storage = partition.get("StorageDescriptor", {})
    return {**partition, "StorageDescriptor": {name: value for name, value in storage.items() if name != "Columns"}}
