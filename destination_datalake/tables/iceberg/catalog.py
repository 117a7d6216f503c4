"""PyIceberg's Glue catalog, made to keep what is not its own, and to be sure of what has become of a commit."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import FileIO
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from destination_datalake.tables.glue.glue_table import TableInput, as_table_input
from destination_datalake.tables.iceberg.io import S3FileIO

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableInputTypeDef, TableTypeDef

    from destination_datalake.aws.access import AwsAccess

COMMENT = "comment"
"""The table property that engines show as the table's comment; Glue's Description follows it when it changes."""

_METADATA = "metadata_location"


class KeepingGlueCatalog(GlueCatalog):
    """A Glue catalog for one change of one table, each commit made on just the metadata that it was planned on.

    Of an entry a commit changes only what Iceberg puts there. A metadata file, which never changes, is read once.
    """

    _planned_on = ""
    _entry: TableTypeDef
    _read: TableMetadata | None = None
    _read_from = ""
    _snapshots: frozenset[int] = frozenset()
    _removed: frozenset[str] = frozenset()

    def __init__(self, access: AwsAccess) -> None:
        super().__init__("glue", client=access.client("glue"))
        self._access = access

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return S3FileIO(self._access.client("s3"))

    def _is_s3tables_database(self, database_name: str) -> bool:  # noqa: ARG002
        # PyIceberg asks at every creation and commit. Such databases give tables their locations, and refuse ours.
        return False

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        # Its name is a new UUID, so nobody looks whether it is there.
        ToOutputFile.table_metadata(metadata, io.new_output(metadata_path), overwrite=True)

    def _get_glue_table(self, database_name: str, table_name: str) -> TableTypeDef:
        found = super()._get_glue_table(database_name, table_name)
        # PyIceberg writes the new parameters into what it was given.
        self._entry = copy.deepcopy(found)
        return found

    def _convert_glue_to_iceberg(self, glue_table: TableTypeDef) -> Table:
        location = glue_table.get("Parameters", {}).get(_METADATA)
        if self._read is not None and location == self._read_from:
            name = (glue_table["DatabaseName"], glue_table["Name"])
            return Table(name, self._read, location, self._load_file_io(), self)
        table = super()._convert_glue_to_iceberg(glue_table)
        self._read, self._read_from = table.metadata, table.metadata_location
        return table

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

    def _update_glue_table(
        self, database_name: str, table_name: str, table_input: TableInputTypeDef, version_id: str
    ) -> None:
        """Update the entry, or find that it was done already. Raises as `commit_table`."""
        # As it was at `version_id`: whoever changes it after that makes the update fail.
        there = as_table_input(self._entry)
        kept = cast("TableInputTypeDef", _keeping(there, dict(table_input), self._removed))
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


def _keeping(there: TableInput, new: TableInput, removed: frozenset[str]) -> TableInput:
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
