"""Replace the content of a Hive table by the result of a replay.

The rebuilt table has its own folders beside the folders of the original table. Once the original is fenced for all
syncs, its location is set to the folder of the rebuilt table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from destination_datalake.files.plan import SourceFile
from destination_datalake.partitioning.projection import LOCATION
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, TOKEN_PROPERTY
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, column_types, table_location
from destination_datalake.tables.hive.content import (
    OF_CONTENT,
    FolderState,
    folders_in_use,
    last_commit,
    list_folder,
    other_folders,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.table import ARCHIVED_PROPERTY, PUBLISHED_BY_PROPERTY, TableName, TableState

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.hive.table import HiveTable


class HiveRebuild:
    """Rebuilds one table. `open_table` opens it as for a sync in append mode."""

    def __init__(self, name: TableName, open_table: Callable[[], HiveTable], access: AwsAccess) -> None:
        self._name = name
        self._open_table = open_table
        self._access = access
        self._table: HiveTable | None = None

    def state(self, name: TableName) -> TableState | None:
        """Return a table's state; None if there is no such table."""
        found = GlueTable(name, self._access).find()
        if found is None:
            return None
        folders = Folders("", self._access)
        content = table_location(found)
        unpublished = [size for folder in folders_in_use(found) - {content} for size in folders.sizes(folder).items()]
        return TableState(
            published_by=found["Parameters"].get(PUBLISHED_BY_PROPERTY),
            has_pending=False,
            commits_whole=False,
            sources=tuple(SourceFile(uri, size, 0) for uri, size in folders.sizes(content).items()),
            unpublished=tuple(SourceFile(uri, size, 0) for uri, size in unpublished),
            version=f"{content} {last_commit(found)}",
            columns=tuple(column_types(found)),
        )

    def clone(self, made: TableName, marks: dict[str, str]) -> None:
        """Create a table with this table's columns, partition keys and parameters, and a new folder."""
        table_input = GlueTable(self._name, self._access).read()
        location = table_location(table_input)
        folder = Folders(location, self._access).for_table_at(location, None)
        parameters = {name: value for name, value in table_input["Parameters"].items() if name not in _NOT_CLONED}
        template = parameters.get(LOCATION, "")
        if template.startswith(f"{location}/"):
            parameters[LOCATION] = f"{folder}{template.removeprefix(location)}"
        storage = {**table_input["StorageDescriptor"], "Location": f"{folder}/"}
        clone = {**table_input, "Name": made.table, "Parameters": {**parameters, **marks}, "StorageDescriptor": storage}
        self._access.client("glue").create_table(DatabaseName=made.database, TableInput=clone)  # type: ignore[arg-type]

    def begin(self) -> None:
        """Take the fencing token. A running sync stops at its next step."""
        if self._table is None:
            self._table = self._open_table()
            self._table.prepare()

    def take_over(self, made: TableName, seen: TableState) -> bool:
        """Set this table's location to the rebuilt table's folder, and drop the rebuilt table.

        Returns False if this table has changed since `seen`. Raises Fenced and TableBusy.
        """
        assert self._table is not None
        location = seen.version.partition(" ")[0]
        present = self.state(self._name)
        if present is None or present.version != seen.version:
            return False
        self._table.take_over(made, location)
        self._access.client("glue").delete_table(DatabaseName=made.database, Name=made.table)
        return True

    def drop(self, made: TableName) -> None:
        """Drop a rebuilt table. The next sync of this table deletes its folders."""
        found = GlueTable(made, self._access).find()
        if found is None:
            return
        left = {*folders_in_use(found), *other_folders(found)}

        def list_folders(table_input: TableInput) -> None:
            for folder in left - folders_in_use(table_input):
                list_folder(table_input, folder, FolderState.DEAD)

        GlueTable(self._name, self._access).update(list_folders)
        self._access.client("glue").delete_table(DatabaseName=made.database, Name=made.table)


_NOT_CLONED = frozenset((TOKEN_PROPERTY, OVERWRITES_PROPERTY, ARCHIVED_PROPERTY, PUBLISHED_BY_PROPERTY, *OF_CONTENT))
"""The parameters that describe a table's rows, folders or writers. A clone must not copy them."""
