"""Names of databases and tables are folded to lower case when they are stored, and found whatever their case.

https://docs.aws.amazon.com/glue/latest/webapi/API_DatabaseInput.html,
https://docs.aws.amazon.com/glue/latest/webapi/API_TableInput.html
"""

import json
from typing import Any

from moto.glue.responses import GlueResponse

_NAMED = frozenset({"GetDatabase", "UpdateDatabase", "DeleteDatabase", "GetTable", "DeleteTable"})
"""The operations whose `Name` is a database or a table; others have jobs, crawlers and more."""


def fold_names() -> None:
    """Let moto's Glue read names of databases and tables in lower case."""
    GlueResponse.parameters = property(_parameters)  # type: ignore[assignment,method-assign]


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
