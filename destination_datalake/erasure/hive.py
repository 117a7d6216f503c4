"""Hive tables: each file in a folder of the table, read by readers or not, is replaced by one without the rows.

A file keeps its name: readers see it before or after, and a table keeps its location, its partitions, and what is
written to it meanwhile. A sync that is about to copy files, to widen a column or to take a pending overwrite in, may
have read them before: it is fenced, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from destination_datalake.config.tables import TAKEN_FOLDERS
from destination_datalake.erasure.columns import TableColumns, saved_schema
from destination_datalake.erasure.objects import Group, Objects, stored_in
from destination_datalake.errors import ConfigError
from destination_datalake.partitioning.spec import Bucket
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.fencing import TOKEN_PROPERTY, FencingToken
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, known_columns, table_location
from destination_datalake.tables.hive.content import FolderState, PendingOverwrite, folders_in_use, other_folders
from destination_datalake.tables.hive.partition_index import location_of
from destination_datalake.tables.hive.registration import RegisteredPartitions
from destination_datalake.tables.hive.scheme import PartitionScheme, has_registered_partitions
from destination_datalake.tables.location import GENERATIONS_SUFFIX, TableLocation
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.erasure.place import Request
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.schema.types import Field
    from destination_datalake.tables.table import TableName


class HiveTablePlace(Objects):
    """All files of a Hive table: of its content, of former contents, of a pending overwrite, of syncs that died."""

    content = "rows"

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table, f"Hive table {table}")
        self._glue_table = GlueTable(table, self.access)

    @property
    def access(self) -> AwsAccess:
        """What the table's files are read and written with."""
        return self.request.catalog.access_of(self.table)

    def require(self) -> None:
        """Raise ConfigError also for a column that the table is partitioned by: folders are named after its values."""
        table_input, column = self._glue_table.find(), self.request.column
        if table_input is not None and (key := _key_that_tells(table_input, column)) is not None:
            raise ConfigError(
                f"--column {column}: table {self.table} is partitioned by it (key {key}), so that ids are in the names "
                "of its folders, and rows cannot be erased. Write the stream to another table with another "
                "partition_by, drop this one, and run the command again: it searches what is left of dropped tables. "
                "Nothing was changed."
            )
        super().require()

    def columns(self) -> tuple[Field, ...]:
        """Return the column as rows have it."""
        found = TableColumns.of(self.table, self.request).in_table(self.request.column)
        return () if found is None else (found,)

    @property
    def folders(self) -> Sequence[str]:
        """The folders that its files are, or were, in; none is inside another."""
        table_input = self._glue_table.find()
        found = outermost(self._folders(table_input))
        if table_input is None and self.request.mask is not None:
            self.request.mask.dropped |= {*found}
        return found

    def groups(self) -> Iterator[Group]:
        """Yield the files, each alone."""
        for folder in self.folders:
            yield from ((each,) for each in stored_in(self.access, folder) if self.takes(each.uri))

    def conclude(self) -> bool:
        """Fence a sync that copies files which it may have read before they were replaced; return False if there is."""

        def fence(table_input: TableInput) -> bool:
            parameters = table_input["Parameters"]
            is_copied = FolderState.DEAD in other_folders(table_input).values()
            may_be_copied = self.has_written and PendingOverwrite.load(table_input) is not None
            if FencingToken.held(parameters) is None or not (is_copied or may_be_copied):
                return False
            del parameters[TOKEN_PROPERTY]
            return True

        if self._glue_table.find() is None or not self._glue_table.update(fence):
            return True
        self.figures.notes.append(
            f"A sync was about to copy files of table {self.table}, or had died there: it is fenced, and the next "
            "sync goes on. If it still runs, let it end and run the command again."
        )
        return False

    # Folders

    def _folders(self, table_input: TableInput | None) -> Iterator[str]:
        """Yield the folders, S3 URIs, in which files of the table are, or may have been left."""
        config = self.request.config
        stream = stream_of(self.table, table_input, self.request)
        if stream is not None:
            own = TableLocation.of(config, stream, self.table, TableNaming.of(config).naming).folder
            yield from (own, f"{own}{GENERATIONS_SUFFIX}")
        if table_input is None:
            return
        location = table_location(table_input)
        yield from (location, f"{location}{GENERATIONS_SUFFIX}")
        yield from folders_in_use(table_input)
        yield from other_folders(table_input)
        if has_registered_partitions(table_input):
            for entry in RegisteredPartitions(self.table, self.access).all(with_columns=False):
                yield from self._of_partition(location_of(entry), location)

    def _of_partition(self, folder: str, location: str) -> Iterator[str]:
        if folder.startswith((f"{location}/", self.request.config.uri(""))):
            yield folder
        else:
            self.figures.note(
                "A partition is registered at a folder elsewhere, which others write to: it was not looked at."
            )

    def takes(self, uri: str) -> bool:
        """Whether an object is in no folder of another kind, as where a table's location is that of all tables."""
        taken = (*TAKEN_FOLDERS, "_deletions")
        return not uri.startswith(tuple(f"{self.request.config.uri(folder)}/" for folder in taken))


def stream_of(table: TableName, table_input: TableInput | None, request: Request) -> StreamId | None:
    """Return the stream that a table was created for; None if nothing tells."""
    if table_input is not None:
        owner = TableOwner.of(table_input["Parameters"])
        return None if owner is None else owner.stream
    named: str = saved_schema(table, request).get("stream", "")
    return TableNaming.of(request.config).candidates(named).get(table)


def outermost(folders: Iterable[str]) -> list[str]:
    """Return the folders that are in none of the others."""
    outer: list[str] = []
    for folder in sorted(set(folders), key=lambda each: f"{each}/"):
        if not outer or not f"{folder}/".startswith(f"{outer[-1]}/"):
            outer.append(folder)
    return outer


def _key_that_tells(table_input: TableInput, column: str) -> str | None:
    """Return the partition key whose values tell those of a column; None if there is none, as hashes tell none."""
    keys = {key["Name"].lower(): key["Name"] for key in table_input.get("PartitionKeys") or ()}
    scheme = PartitionScheme.recorded(table_input, (*METADATA_COLUMNS, *known_columns(table_input)))
    for key in scheme.folders.keys if scheme is not None else ():
        if ".".join(key.field.source).lower() == column.lower() and not isinstance(key.field.transform, Bucket):
            return key.field.name
    return keys.get(column.lower())
