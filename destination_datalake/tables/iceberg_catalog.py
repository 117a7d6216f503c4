"""PyIceberg's Glue catalog, made to keep what is not its own, and to be sure of what has become of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from destination_datalake.tables.entry import Entry, as_input

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableInputTypeDef, TableTypeDef

COMMENT = "comment"
"""The table property that engines show as the table's comment; Glue's Description follows it when it changes."""

_METADATA = "metadata_location"


class KeepingGlueCatalog(GlueCatalog):
    """A Glue catalog for one commit after the other, each made on just the metadata that it was planned on.

    Of an entry a commit changes only what Iceberg puts there.
    """

    _planned_on = ""
    _snapshots: frozenset[int] = frozenset()
    _removed: frozenset[str] = frozenset()
    _read: TableTypeDef

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit what was planned on `table`.

        Raises CommitFailedException if another writer has committed since, and then this was not done and never will
        be; CommitStateUnknownException, or what botocore raises, if nobody can tell.
        """
        self._planned_on = table.metadata_location
        self._snapshots = frozenset(
            update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)
        )
        return super().commit_table(table, requirements, updates)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        # PyIceberg's requirements name one branch and no properties; the fencing token is a property.
        if current_table is None or current_table.metadata_location != self._planned_on:
            raise CommitFailedException("Another writer has committed since this commit was planned")
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        self._removed = frozenset(current_table.metadata.properties) - frozenset(staged.metadata.properties)
        return staged

    def _get_glue_table(self, database_name: str, table_name: str) -> TableTypeDef:
        # Whose version goes with the update, so that its entry need not be read again.
        self._read = super()._get_glue_table(database_name, table_name)
        return self._read

    def _update_glue_table(
        self, database_name: str, table_name: str, table_input: TableInputTypeDef, version_id: str
    ) -> None:
        """Update the entry, or find that it was done already. Raises as `commit_table`."""
        kept = cast("TableInputTypeDef", _keeping(as_input(self._read), dict(table_input), self._removed))
        try:
            super()._update_glue_table(database_name, table_name, kept, version_id)
        except (CommitFailedException, ClientError, BotoCoreError) as error:
            # botocore asks again when an answer is lost on its way, and then it is our own update that was faster.
            landed = self._landed(database_name, table_name, kept["Parameters"][_METADATA])
            if landed:
                return
            if landed is None and isinstance(error, CommitFailedException):
                raise CommitStateUnknownException(
                    f"Whether the commit to {database_name}.{table_name} was made cannot be told"
                ) from error
            raise

    def _landed(self, database_name: str, table_name: str, ours: str) -> bool | None:
        """Whether our commit, with its metadata at `ours`, is in the table, however many others came after it.

        The metadata names what it follows. None if that no longer reaches back to what ours was planned on.
        """
        now = self._convert_glue_to_iceberg(self._get_glue_table(database_name, table_name))
        history = {now.metadata_location, *(entry.metadata_file for entry in now.metadata.metadata_log)}
        if ours in history or any(now.metadata.snapshot_by_id(snapshot) for snapshot in self._snapshots):
            return True
        return False if self._planned_on in history else None


def _keeping(there: Entry, new: Entry, removed: frozenset[str]) -> Entry:
    """Return the new entry with everything of the one that is there which Iceberg says nothing about."""
    storage = {**there["StorageDescriptor"], **new["StorageDescriptor"]}
    comments = {
        column["Name"].lower(): column.get("Comment") for column in there["StorageDescriptor"].get("Columns", [])
    }
    storage["Columns"] = [_commented(column, comments.get(column["Name"].lower())) for column in storage["Columns"]]
    parameters = {key: value for key, value in new["Parameters"].items() if key not in removed}
    kept = {**there, **new, "StorageDescriptor": storage, "Parameters": parameters}
    comment = new["Parameters"].get(COMMENT)
    if comment is not None and comment != there["Parameters"].get(COMMENT):
        kept["Description"] = comment
    return kept


def _commented(column: dict[str, Any], comment: str | None) -> dict[str, Any]:
    return {**column, "Comment": comment} if comment is not None else column
