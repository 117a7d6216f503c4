"""Replaces the content of a Hive table with the result of a replay.

A replay writes the archived records of a stream to a second table, the rebuilt table. Its folders are beside those of
the original table. The replacement first takes the original table's fencing token, so that running syncs of this table
stop. Then the folder of the rebuilt table becomes the location of the original table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from destination_datalake.files.plan import SourceFile
from destination_datalake.partitioning.projection import LOCATION
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, TOKEN_PROPERTY
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, column_types, table_location
from destination_datalake.tables.hive.content import (
    CONTENT_PARAMETERS,
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
    """Rebuilds one Hive table (see `Rebuild`). `open_table` opens the table for an append."""

    def __init__(self, name: TableName, open_table: Callable[[], HiveTable], access: AwsAccess) -> None:
        self._name = name
        self._open_table = open_table
        self._access = access
        self._table: HiveTable | None = None

    def state(self, name: TableName) -> TableState | None:
        """Return the state of the table `name`, or None if that table does not exist."""
        table_input = GlueTable(name, self._access).find()
        if table_input is None:
            return None
        folders = Folders("", self._access)
        content = table_location(table_input)
        pending = folders_in_use(table_input) - {content}
        unpublished = [size for folder in pending for size in folders.sizes(folder).items()]
        return TableState(
            published_by=table_input["Parameters"].get(PUBLISHED_BY_PROPERTY),
            has_pending=False,
            commits_whole=False,
            sources=tuple(SourceFile(uri, size, 0) for uri, size in folders.sizes(content).items()),
            unpublished=tuple(SourceFile(uri, size, 0) for uri, size in unpublished),
            version=f"{content} {last_commit(table_input)}",
            columns=tuple(column_types(table_input)),
        )

    def clone(self, rebuilt: TableName, marks: dict[str, str]) -> None:
        """Create the rebuilt table with this table's columns, partition keys and parameters, and a new folder.

        Add `marks` to the rebuilt table's parameters.
        """
        table_input = GlueTable(self._name, self._access).read()
        location = table_location(table_input)
        folder = Folders(location, self._access).for_table_at(location, None)
        parameters = {name: value for name, value in table_input["Parameters"].items() if name not in _NOT_CLONED}
        template = parameters.get(LOCATION, "")
        if template.startswith(f"{location}/"):
            parameters[LOCATION] = f"{folder}{template.removeprefix(location)}"
        storage = {**table_input["StorageDescriptor"], "Location": f"{folder}/"}
        entry = {
            **table_input,
            "Name": rebuilt.table,
            "Parameters": {**parameters, **marks},
            "StorageDescriptor": storage,
        }
        glue: Any = self._access.client("glue")
        glue.create_table(DatabaseName=rebuilt.database, TableInput=entry)

    def begin(self) -> None:
        """Take the table's fencing token, so that a running sync of the table fails at its next change of the table."""
        if self._table is None:
            self._table = self._open_table()
            self._table.prepare()

    def take_over(self, rebuilt: TableName, expected: TableState) -> bool:
        """Make the rebuilt table's folder the location of this table, and drop the rebuilt table.

        Returns False and changes nothing if this table's state differs from `expected`. Raises Fenced if the rebuild
        has lost the fencing token, and TableBusy if another writer changed the location.
        """
        assert self._table is not None
        location = expected.version.partition(" ")[0]
        state = self.state(self._name)
        if state is None or state.version != expected.version:
            return False
        # The check above is only an early exit. `take_over` compares the location again, by compare-and-set and with
        # the token.
        self._table.take_over(rebuilt, location)
        # Glue deletes only the entry. The files belong to the original table by now.
        self._access.client("glue").delete_table(DatabaseName=rebuilt.database, Name=rebuilt.table)
        return True

    def drop(self, rebuilt: TableName) -> None:
        """Drop a rebuilt table. The next sync of this table deletes the folders of the rebuilt table.

        Do nothing if the rebuilt table does not exist.
        """
        entry = GlueTable(rebuilt, self._access).find()
        if entry is None:
            return
        folders = {*folders_in_use(entry), *other_folders(entry)}

        def list_folders(table_input: TableInput) -> None:
            for folder in folders - folders_in_use(table_input):
                list_folder(table_input, folder, FolderState.DEAD)

        # List the folders before the entry that knows them is gone. If the process is killed in between, a repeated
        # call does no harm.
        GlueTable(self._name, self._access).update(list_folders)
        self._access.client("glue").delete_table(DatabaseName=rebuilt.database, Name=rebuilt.table)


_NOT_CLONED = frozenset(
    (TOKEN_PROPERTY, OVERWRITES_PROPERTY, ARCHIVED_PROPERTY, PUBLISHED_BY_PROPERTY, *CONTENT_PARAMETERS)
)
"""Parameters that describe a table's rows, folders or writers. A clone does not copy them."""
