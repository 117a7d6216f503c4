"""Hive tables whose content a replay makes again.

The made table has folders of its own beside those of the other one. Once that is fenced for all syncs, its location
becomes the made table's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from destination_datalake.files.erase import EraseTask, StoredObject, erase
from destination_datalake.files.jobs import done
from destination_datalake.files.plan import SourceFile
from destination_datalake.partitioning.projection import LOCATION
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, TOKEN_PROPERTY
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, column_types, table_location
from destination_datalake.tables.hive.content import (
    OF_CONTENT,
    FolderState,
    folders_in_use,
    last_commit,
    list_folder,
    lowest_generation,
    other_folders,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.rebuild import TableState
from destination_datalake.tables.table import TableBusy, TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.files.segments import Window
    from destination_datalake.tables.context import Jobs
    from destination_datalake.tables.hive.table import HiveTable


class HiveRebuild:
    """One table. `open_table` opens it as for a sync that appends."""

    def __init__(
        self, name: TableName, open_table: Callable[[], HiveTable], access: AwsAccess, jobs: Jobs | None
    ) -> None:
        self._name = name
        self._open_table = open_table
        self._access = access
        self._jobs = jobs
        self._table: HiveTable | None = None

    def state(self, name: TableName) -> TableState | None:
        """Return a table's state; None if there is no such table."""
        found = GlueTable(name, self._access).find()
        if found is None:
            return None
        folders = Folders("", self._access)
        content = table_location(found)
        others = [size for folder in folders_in_use(found) - {content} for size in folders.sizes(folder).items()]
        return TableState(
            lowest_generation=lowest_generation(found),
            has_pending=False,
            commits_whole=False,
            sources=tuple(SourceFile(uri, size, 0) for uri, size in folders.sizes(content).items()),
            unpublished=tuple(SourceFile(uri, size, 0) for uri, size in others),
            version=f"{content} {last_commit(found)}",
            rows=None,
        )

    def clone(self, made: TableName, marks: dict[str, str]) -> None:
        """Create a table with columns, partition keys and parameters of this one, and a new folder."""
        table_input = GlueTable(self._name, self._access).read()
        location = table_location(table_input)
        folder = Folders(location, self._access).for_table_at(location, None)
        parameters = {name: value for name, value in table_input["Parameters"].items() if name not in _OF_ROWS}
        template = parameters.get(LOCATION, "")
        if template.startswith(f"{location}/"):
            parameters[LOCATION] = f"{folder}{template.removeprefix(location)}"
        storage = {**table_input["StorageDescriptor"], "Location": f"{folder}/"}
        clone = {**table_input, "Name": made.table, "Parameters": {**parameters, **marks}, "StorageDescriptor": storage}
        self._access.client("glue").create_table(DatabaseName=made.database, TableInput=clone)  # type: ignore[arg-type]

    def begin(self) -> None:
        """Take the fencing token: a running sync stops at its next step."""
        if self._table is None:
            self._table = self._open_table()
            self._table.prepare()

    def take_over(self, made: TableName, seen: TableState, window: Window | None = None) -> bool:
        """Make the made table's folder this one's location, and drop that table. Raises Fenced, and TableBusy.

        With a `window`, rows outside it are copied there first.
        """
        assert self._table is not None
        location = seen.version.partition(" ")[0]
        folders = Folders("", self._access)
        files = {} if window is None else folders.files(location)
        copied = [] if window is None else self._copy_outside(window, files, location, made)
        present = self.state(self._name)
        are_others = window is not None and folders.files(location) != files
        if present is None or present.version != seen.version or are_others:
            folders.delete(copied)
            return False
        self._table.take_over(made, location, keeps_rows=window is not None)
        self._access.client("glue").delete_table(DatabaseName=made.database, Name=made.table)
        return True

    def _copy_outside(self, window: Window, names: Collection[str], location: str, made: TableName) -> list[str]:
        """Copy the table's files into the made table's folder, without rows within a window; return the copies."""
        assert self._jobs is not None
        folders, table_input = Folders("", self._access), GlueTable(made, self._access).read()
        if column_types(table_input) != column_types(GlueTable(self._name, self._access).read()):
            raise TableBusy(f"The columns of table {self._name} have been changed meanwhile. Run the replay again.")
        target = table_location(table_input)
        folders.copy(names, location, target)
        copies = [
            StoredObject(f"{target}/{name}", each["ETag"], each["Size"])
            for name, each in folders.visible(target)
            if name in names
        ]
        tasks = [EraseTask(((each,),), "rows", (_EXTRACTED_AT,), window, self._access, write=True) for each in copies]
        done(self._jobs.executors.run(erase, tasks) if tasks else [])
        return [each.uri for each in copies]

    def drop(self, made: TableName) -> None:
        """Drop the table; its folders are deleted by the next sync of this one."""
        found = GlueTable(made, self._access).find()
        if found is None:
            return
        left = {*folders_in_use(found), *other_folders(found)}

        def list_left(table_input: TableInput) -> None:
            for folder in left - folders_in_use(table_input):
                list_folder(table_input, folder, FolderState.DEAD)

        GlueTable(self._name, self._access).update(list_left)
        self._access.client("glue").delete_table(DatabaseName=made.database, Name=made.table)


_EXTRACTED_AT = next(column for column in METADATA_COLUMNS if column.name == "_airbyte_extracted_at")

_OF_ROWS = frozenset((TOKEN_PROPERTY, OVERWRITES_PROPERTY, *OF_CONTENT))
"""The parameters that say something of a table's rows, folders or writers."""
