"""PyIceberg's Glue catalog, made to keep what is not its own, and to be sure of what has become of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException

from destination_datalake.tables.entry import Entry, as_input

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableInputTypeDef

COMMENT = "comment"
"""The table property that engines show as the table's comment; Glue's Description follows it when it changes."""

_METADATA = "metadata_location"
_METADATA_BEFORE = "previous_metadata_location"


class KeepingGlueCatalog(GlueCatalog):
    """A Glue catalog whose commits change of an entry only what Iceberg puts there."""

    def _update_glue_table(
        self, database_name: str, table_name: str, table_input: TableInputTypeDef, version_id: str
    ) -> None:
        """Update the entry. Raises CommitFailedException if another writer was faster, and then this was not done."""
        there = as_input(self._get_glue_table(database_name, table_name))
        kept = cast("TableInputTypeDef", _keeping(there, dict(table_input)))
        try:
            super()._update_glue_table(database_name, table_name, kept, version_id)
        except CommitFailedException:
            # botocore asks again when an answer is lost on its way, and then it is our own update that was faster.
            now = as_input(self._get_glue_table(database_name, table_name))["Parameters"]
            if kept["Parameters"][_METADATA] not in (now.get(_METADATA), now.get(_METADATA_BEFORE)):
                raise


def _keeping(there: Entry, new: Entry) -> Entry:
    """Return the new entry with everything of the one that is there which Iceberg says nothing about."""
    storage = {**there["StorageDescriptor"], **new["StorageDescriptor"]}
    comments = {column["Name"]: column.get("Comment") for column in there["StorageDescriptor"].get("Columns", [])}
    storage["Columns"] = [_commented(column, comments.get(column["Name"])) for column in storage["Columns"]]
    kept = {**there, **new, "StorageDescriptor": storage}
    comment = new["Parameters"].get(COMMENT)
    if comment is not None and comment != there["Parameters"].get(COMMENT):
        kept["Description"] = comment
    return kept


def _commented(column: dict[str, Any], comment: str | None) -> dict[str, Any]:
    return {**column, "Comment": comment} if comment is not None else column
