"""Hive tables: each file in a folder of the table, read by readers or not, is replaced by one without the rows.

A file keeps its name: readers see it before or after, and a table keeps its location, its partitions, and what is
written to it meanwhile. A sync that is about to copy files, to widen a column or to take a pending overwrite in, may
have read them before: it is fenced, and the next one goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from destination_datalake.config.tables import TAKEN_FOLDERS
from destination_datalake.erasure.columns import TableColumns, saved_schema
from destination_datalake.erasure.objects import Group, Objects, stored_in
from destination_datalake.erasure.place import ErasedObject
from destination_datalake.errors import ConfigError
from destination_datalake.partitioning.paths import unescaped
from destination_datalake.partitioning.spec import Identity
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.fencing import TOKEN_PROPERTY, FencingToken
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, known_columns, table_location
from destination_datalake.tables.hive.content import FolderState, PendingOverwrite, folders_in_use, other_folders
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partition_index import PartitionIndex, location_of, mark_behind
from destination_datalake.tables.hive.registration import RegisteredPartitions, Values, values_of
from destination_datalake.tables.hive.scheme import PartitionScheme, has_registered_partitions
from destination_datalake.tables.location import GENERATIONS_SUFFIX, TableLocation
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.erasure.place import Request
    from destination_datalake.files.erase import StoredObject
    from destination_datalake.files.ids import Ids
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
        return self._request.catalog.access_of(self.table)

    def require(self) -> None:
        """Raise ConfigError also for a column that is a partition key: no file has its values."""
        table_input = self._glue_table.find()
        keys = [] if table_input is None else table_input.get("PartitionKeys") or []
        if any(key["Name"].lower() == self._request.column.lower() for key in keys):
            raise ConfigError(
                f"--column {self._request.column}: it is a partition key of table {self.table}. Name the column that "
                "it is made of."
            )
        super().require()

    def columns(self) -> tuple[Field, ...]:
        """Return the column as rows have it."""
        found = TableColumns.of(self.table, self._request).in_table(self._request.column)
        return () if found is None else (found,)

    @property
    def folders(self) -> Sequence[str]:
        """The folders that its files are, or were, in; none is inside another."""
        return _outermost(self._folders(self._glue_table.find()))

    def groups(self) -> Iterator[Group]:
        """Yield the files, each alone; those of partitions that have none of the ids are left out."""
        table_input = self._glue_table.find()
        partitions = self._partitions(table_input)
        for folder in _outermost(self._folders(table_input)):
            found = (each for each in stored_in(self.access, folder) if self.takes(each.uri))
            if partitions is None:
                yield from ((each,) for each in found)
                continue
            by_folder: dict[str, list[StoredObject]] = defaultdict(list)
            for each in found:
                by_folder[each.uri.rpartition("/")[0]].append(each)
            chosen = partitions.that_may_have(by_folder, self._ids)
            self.figures.objects += sum(map(len, by_folder.values())) - sum(len(by_folder[each]) for each in chosen)
            for inside in chosen:
                yield from ((each,) for each in by_folder[inside])

    def find(self) -> Iterator[ErasedObject]:
        """Yield the files that have rows of the ids, and partitions that are registered under one."""
        yield from super().find()
        for location, _ in self._registered_ids():
            yield ErasedObject(location, -1, reason="the catalog has a partition of that value")

    def erase(self) -> Iterator[ErasedObject]:
        """Write files again, and take partitions of the ids out of the catalog."""
        yield from super().erase()
        if registered := self._registered_ids():
            # A sync that has registered them already would not do so again.
            self._glue_table.update(mark_behind)
            RegisteredPartitions(self.table, self.access).delete([values for _, values in registered])
            yield from (ErasedObject(location, -1, -1, "removed") for location, _ in registered)
        self._project_others()

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

    # Partitions in the catalog

    def _partitions(self, table_input: TableInput | None) -> _Partitions | None:
        return None if table_input is None or not self._columns else _Partitions.of(table_input, self._columns[0])

    def _registered_ids(self) -> list[tuple[str, Values]]:
        """Return the registered partitions whose value is an id: location and values."""
        table_input = self._glue_table.find()
        partitions = self._partitions(table_input)
        if partitions is None or table_input is None or not has_registered_partitions(table_input):
            return []
        found = {
            values_of(each): location_of(each)
            for each in RegisteredPartitions(self.table, self.access).all(with_columns=False)
        }
        return [(found[values], values) for values in partitions.of_ids(found, self._ids)]

    def _project_others(self) -> None:
        """Let Athena look for the partitions that are left alone, if the table has a list of them."""

        def project(table_input: TableInput) -> None:
            partitions = self._partitions(table_input)
            if partitions is None or partitions.scheme.catalog == "register":
                return
            stream = stream_of(self.table, table_input, self._request) or StreamId(None, self.table.table)
            folders = Folders("", self.access)
            PartitionIndex(self._glue_table, self.access, folders, stream, partitions.scheme).project_anew(table_input)

        if self._partitions(self._glue_table.find()) is not None:
            self._glue_table.update(project)

    # Folders

    def _folders(self, table_input: TableInput | None) -> Iterator[str]:
        """Yield the folders, S3 URIs, in which files of the table are, or may have been left."""
        config = self._request.config
        stream = stream_of(self.table, table_input, self._request)
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
        if folder.startswith((f"{location}/", self._request.config.uri(""))):
            yield folder
        else:
            self.figures.note(
                "A partition is registered at a folder elsewhere, which others write to: it was not looked at."
            )

    def takes(self, uri: str) -> bool:
        """Whether an object is in no folder of another kind, as where a table's location is that of all tables."""
        taken = (*TAKEN_FOLDERS, "_deletions")
        return not uri.startswith(tuple(f"{self._request.config.uri(folder)}/" for folder in taken))


def stream_of(table: TableName, table_input: TableInput | None, request: Request) -> StreamId | None:
    """Return the stream that a table was created for; None if nothing tells."""
    if table_input is not None:
        owner = TableOwner.of(table_input["Parameters"])
        return None if owner is None else owner.stream
    named: str = saved_schema(table, request).get("stream", "")
    return TableNaming.of(request.config).candidates(named).get(table)


def _outermost(folders: Iterable[str]) -> list[str]:
    """Return the folders that are in none of the others."""
    outer: list[str] = []
    for folder in sorted(set(folders), key=lambda each: f"{each}/"):
        if not outer or not f"{folder}/".startswith(f"{outer[-1]}/"):
            outer.append(folder)
    return outer


class _Partitions:
    """Leaves out folders whose values, as they are the column's own, are no ids."""

    def __init__(self, scheme: PartitionScheme, position: int, column: Field, folders: Iterable[str]) -> None:
        self.scheme = scheme
        self._key = scheme.folders.keys[position]
        self._position = position
        self._type = arrow_type(widest(column.type))
        self._contents = [f"{folder}/" for folder in folders]

    @classmethod
    def of(cls, table_input: TableInput, column: Field) -> _Partitions | None:
        """Return those of a table; None if it has none by this column."""
        scheme = PartitionScheme.recorded(table_input, (*METADATA_COLUMNS, *known_columns(table_input)))
        for position, key in enumerate(scheme.folders.keys if scheme is not None else ()):
            if isinstance(key.field.transform, Identity) and key.field.source == column.path:
                assert scheme is not None
                folders = {*folders_in_use(table_input), *other_folders(table_input)}
                return cls(scheme, position, column, folders)
        return None

    def that_may_have(self, folders: Iterable[str], ids: Ids) -> list[str]:
        """Return the folders, S3 URIs, that may have rows of ids."""
        texts = {folder: self._of_folder(folder) for folder in folders}
        are_ids = self._are_ids({text for text in texts.values() if text is not None}, ids)
        return [folder for folder, text in texts.items() if text is None or are_ids is None or are_ids[text]]

    def of_ids(self, partitions: Iterable[Values], ids: Ids) -> list[Values]:
        """Return the partitions, given by their values in the catalog, whose value is an id."""
        texts = {values: self._of_values(values) for values in partitions}
        are_ids = self._are_ids({text for text in texts.values() if text is not None}, ids) or {}
        return [values for values, text in texts.items() if text is not None and are_ids.get(text, False)]

    def _are_ids(self, texts: Collection[str], ids: Ids) -> dict[str, bool] | None:
        """Tell which of the texts are ids; None if one is no value of the column."""
        try:
            values: Any = pa.array([*texts], pa.string()).cast(self._type)
        except pa.ArrowException:
            return None
        return dict(zip(texts, ids.contains(values).tolist(), strict=True))

    def _of_folder(self, folder: str) -> str | None:
        content = max((each for each in self._contents if folder.startswith(each)), key=len, default=None)
        values = None if content is None else self.scheme.folders.texts_of(folder.removeprefix(content))
        return None if values is None else self._of_values(values)

    def _of_values(self, values: Values) -> str | None:
        """Return the column's value in a partition; None if it has none, or stands for those without room in a key."""
        text = values[self._position]
        if text == self._key.null:
            return None
        return unescaped(text) if self._key.projected else text
