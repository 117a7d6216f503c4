"""A table's entry in the Glue Data Catalog, changed without losing what others write into it at the same time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from destination_datalake.aws.retries import retry_on

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.table import TableName

TableInput = dict[str, Any]
"""What UpdateTable takes (Glue API: TableInput). `Parameters` is always there."""

# What GetTable answers and UpdateTable takes (Glue API: TableInput); the rest of the answer is Glue's own.
_TABLE_INPUT = (
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
    """An entry as it was at one moment; `version` (Glue: VersionId) tells that one from every other."""

    entry: TableInput
    version: str | None


class GlueTable:
    """The entry of one table."""

    def __init__(self, name: TableName, access: AwsAccess) -> None:
        self._name = name
        self._access = access

    def read(self) -> TableInput:
        """Return the entry. Raises EntityNotFoundException (Glue) if there is no such table."""
        return as_table_input(self._get())

    def update(self, change: Callable[[TableInput], _Result], seen: TableVersion | None = None) -> _Result:
        """Change the entry in one call, or in none if nothing becomes different; return what `change` returned.

        `seen` is what to begin with, if it was just seen.

        `change` alters the entry as the catalog has it. When somebody else's update was faster (Glue: VersionId), it is
        called again, on the entry that they made. Raises what Glue raises, and that conflict only if it does not end.
        """

        def attempt() -> _Result:
            nonlocal seen
            before, seen = seen or self.read_version(), None
            after: Any = copy.deepcopy(before.entry)
            result = change(after)
            if after != before.entry:
                self._put(after, before)
            return result

        return retry_on(self._access.client("glue").exceptions.ConcurrentModificationException, attempt)

    def read_version(self) -> TableVersion:
        """Return the entry with its version, for `compare_and_set`. Raises what `read` raises."""
        table = self._get()
        return TableVersion(as_table_input(table), table.get("VersionId"))

    def compare_and_set(self, seen: TableVersion, change: Callable[[TableInput], object]) -> bool:
        """Change the entry if nobody has since it was seen; say whether it was changed."""
        after = copy.deepcopy(seen.entry)
        change(after)
        try:
            self._put(after, seen)
        except self._access.client("glue").exceptions.ConcurrentModificationException:
            return False
        return True

    def _put(self, entry: Any, seen: TableVersion) -> None:
        version: Any = {"VersionId": seen.version} if seen.version is not None else {}
        glue = self._access.client("glue")
        glue.update_table(DatabaseName=self._name.database, TableInput=entry, SkipArchive=True, **version)

    def _get(self) -> Mapping[str, Any]:
        answer = self._access.client("glue").get_table(DatabaseName=self._name.database, Name=self._name.table)
        return answer["Table"]


def as_table_input(table: Mapping[str, Any]) -> TableInput:
    """Return what UpdateTable takes of what GetTable answered."""
    entry = {key: table[key] for key in _TABLE_INPUT if key in table}
    return {**entry, "Parameters": {**entry.get("Parameters", {})}}
