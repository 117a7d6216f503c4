"""A table of the Glue Data Catalog, updated by compare-and-set so that no other writer's concurrent change is lost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from destination_datalake.aws.retries import retry_on

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.table import TableName

TableInput = dict[str, Any]
"""What UpdateTable takes (Glue API: TableInput). `Parameters` is always present."""

# GetTable answers with more keys (Glue API: Table), which UpdateTable refuses.
_TABLE_INPUT_KEYS = (
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as it was read, with the id of that version (Glue API: VersionId), which every update changes."""

    table_input: TableInput
    version_id: str | None


class GlueTable:
    """One table. It need not exist yet. `created` is when the table was created that was read last."""

    def __init__(self, name: TableName, access: AwsAccess) -> None:
        self.name = name
        self.created: datetime | None = None
        self._access = access

    def read(self) -> TableInput:
        """Return the table. Raises EntityNotFoundException (Glue) if it does not exist."""
        return as_table_input(self._get())

    def read_version(self) -> TableVersion:
        """Return the table with its version. Raises EntityNotFoundException (Glue) if it does not exist."""
        table = self._get()
        return TableVersion(as_table_input(table), table.get("VersionId"))

    def update(self, change: Callable[[TableInput], _Result], version: TableVersion | None = None) -> _Result:
        """Apply `change` to the table and return its result. No call is made if the table stays equal.

        Retries on optimistic-concurrency conflicts with exponential backoff and jitter: `change` is then called again,
        on the table as the other writer left it. `version` saves reading the table, if it was just read. Raises what
        Glue raises; ConcurrentModificationException only after the last attempt.
        """

        def attempt() -> _Result:
            nonlocal version
            before, version = version or self.read_version(), None
            changed = copy.deepcopy(before.table_input)
            result = change(changed)
            if changed != before.table_input:
                self._put(changed, before)
            return result

        return retry_on(self._access.client("glue").exceptions.ConcurrentModificationException, attempt)

    def compare_and_set(self, version: TableVersion, change: Callable[[TableInput], object]) -> bool:
        """Apply `change` only if the table still has this version; return whether it was applied."""
        changed = copy.deepcopy(version.table_input)
        change(changed)
        try:
            self._put(changed, version)
        except self._access.client("glue").exceptions.ConcurrentModificationException:
            return False
        return True

    def _put(self, table_input: Any, version: TableVersion) -> None:
        condition: Any = {"VersionId": version.version_id} if version.version_id is not None else {}
        glue = self._access.client("glue")
        glue.update_table(DatabaseName=self.name.database, TableInput=table_input, SkipArchive=True, **condition)

    def _get(self) -> Mapping[str, Any]:
        answer = self._access.client("glue").get_table(DatabaseName=self.name.database, Name=self.name.table)
        self.created = answer["Table"].get("CreateTime")
        return answer["Table"]


def as_table_input(table: Mapping[str, Any]) -> TableInput:
    """Return the part of GetTable's answer that UpdateTable takes."""
    table_input = {key: table[key] for key in _TABLE_INPUT_KEYS if key in table}
    return {**table_input, "Parameters": {**table_input.get("Parameters", {})}}
