"""Erase rows from Hive tables: rewrite every file in the table's folders, visible or not, without the rows.

A file keeps its name, so that readers see it either before or after, and the table keeps its location, its partitions
and concurrent writes. A sync that copies files, to widen a column or to adopt a pending overwrite, may have read a file
before its rewrite. It is fenced; the next sync continues.
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


class HiveTarget(Objects):
    """All files of a Hive table: current and former content, a pending overwrite, leftovers of failed syncs."""

    content = "rows"

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table, f"Hive table {table}")
        self._glue_table = GlueTable(table, self.access)

    @property
    def access(self) -> AwsAccess:
        """Return the access to the table's files."""
        return self.request.catalog.access_of(self.table)

    def require(self) -> None:
        """Raise ConfigError also for a partition column: its values are in the names of folders."""
        table_input, column = self._glue_table.find(), self.request.column
        if table_input is not None and (key := _revealing_key(table_input, column)) is not None:
            raise ConfigError(
                f"Cannot erase rows by --column {column}: table {self.table} is partitioned by it (key {key}), so that "
                "names of folders contain ids. Write the stream to another table with another partition_by, drop this "
                "table, and run the command again: it also searches the leftovers of dropped tables. "
                "Nothing was changed."
            )
        super().require()

    def columns(self) -> tuple[Field, ...]:
        """Return the column as in the table's rows."""
        found = TableColumns.of(self.table, self.request).in_table(self.request.column)
        return () if found is None else (found,)

    @property
    def folders(self) -> Sequence[str]:
        """Return the folders of present and former files; no folder contains another."""
        table_input = self._glue_table.find()
        found = outermost(self._folders(table_input))
        if table_input is None and self.request.mask is not None:
            self.request.mask.dropped |= {*found}
        return found

    def groups(self) -> Iterator[Group]:
        """Yield the files, one per group."""
        for folder in self.folders:
            yield from ((each,) for each in stored_in(self.access, folder) if self.takes(each.uri))

    def conclude(self) -> bool:
        """Fence a sync that may copy files it read before their rewrite; return False if there was one."""

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
            f"Fenced a sync that was copying files of table {self.table}, or had failed there; the next sync "
            "continues. If the sync still runs, let it end and run the command again."
        )
        return False

    # Folders

    def _folders(self, table_input: TableInput | None) -> Iterator[str]:
        """Yield the folders, as S3 URIs, that have or may have files of the table."""
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
                "Skipped a partition with a folder outside the table: other programs write to that folder."
            )

    def takes(self, uri: str) -> bool:
        """Return whether an object is outside the connector's other folders, which the table's location may contain."""
        taken = (*TAKEN_FOLDERS, "_deletions")
        return not uri.startswith(tuple(f"{self.request.config.uri(folder)}/" for folder in taken))


def stream_of(table: TableName, table_input: TableInput | None, request: Request) -> StreamId | None:
    """Return the stream that a table was created for; None if unknown."""
    if table_input is not None:
        owner = TableOwner.of(table_input["Parameters"])
        return None if owner is None else owner.stream
    named: str = saved_schema(table, request).get("stream", "")
    return TableNaming.of(request.config).candidates(named).get(table)


def outermost(folders: Iterable[str]) -> list[str]:
    """Return the folders that no other of the folders contains."""
    outer: list[str] = []
    for folder in sorted(set(folders), key=lambda each: f"{each}/"):
        if not outer or not f"{folder}/".startswith(f"{outer[-1]}/"):
            outer.append(folder)
    return outer


def _revealing_key(table_input: TableInput, column: str) -> str | None:
    """Return the partition key that reveals values of a column, if any. Buckets are hashes and do not reveal values."""
    keys = {key["Name"].lower(): key["Name"] for key in table_input.get("PartitionKeys") or ()}
    scheme = PartitionScheme.recorded(table_input, (*METADATA_COLUMNS, *known_columns(table_input)))
    for key in scheme.folders.keys if scheme is not None else ():
        if ".".join(key.field.source).lower() == column.lower() and not isinstance(key.field.transform, Bucket):
            return key.field.name
    return keys.get(column.lower())
