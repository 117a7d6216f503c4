"""Batches have a size.

https://docs.aws.amazon.com/glue/latest/webapi/API_BatchCreatePartition.html and its neighbours: "Array Members:
Maximum number of … items"
"""

from collections.abc import Mapping
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse

LIMITS: Mapping[str, tuple[str, int]] = {
    "batch_create_partition": ("PartitionInputList", 100),
    "batch_delete_partition": ("PartitionsToDelete", 25),
    "batch_delete_table": ("TablesToDelete", 100),
    "batch_get_partition": ("PartitionsToGet", 1000),
    "batch_update_partition": ("Entries", 100),
}


def limit_batches() -> None:
    """Let moto's Glue refuse batches with more members than Glue takes."""
    for operation, (member, limit) in LIMITS.items():
        _limit(operation, member, limit)


def _limit(operation: str, member: str, limit: int) -> None:
    unlimited = getattr(GlueResponse, operation)

    def answer(request: GlueResponse) -> Any:
        if len(request.parameters[member]) > limit:
            raise JsonRESTError("InvalidInputException", f"{member} has more than {limit} members")
        return unlimited(request)

    setattr(GlueResponse, operation, answer)
