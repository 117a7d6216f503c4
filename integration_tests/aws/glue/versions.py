"""Versions of a table: an update may name the one that it replaces.

UpdateTable's VersionId is "the version ID at which to update the table contents", and a stale one is answered with
ConcurrentModificationException: https://docs.aws.amazon.com/glue/latest/webapi/API_UpdateTable.html
"""

import threading

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.glue.responses import GlueResponse


def compare_versions() -> None:
    """Let moto's UpdateTable refuse a VersionId that is not the table's any more, as Glue does."""
    unconditional = GlueResponse.update_table
    lock = threading.Lock()

    def update_table(request: GlueResponse) -> ActionResult:
        asked, database = request.parameters.get("VersionId"), request.parameters["DatabaseName"]
        with lock:
            table = request.glue_backend.get_table(database, request.parameters["TableInput"]["Name"])
            if asked not in (None, table.as_dict()["VersionId"]):
                raise JsonRESTError("ConcurrentModificationException", f"Update table failed: version {asked} is old")
            return unconditional(request)

    GlueResponse.update_table = update_table  # type: ignore[assignment,method-assign]
