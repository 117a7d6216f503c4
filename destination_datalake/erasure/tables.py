"""Erase rows from Hive tables, from Iceberg tables, and from files that dropped Iceberg tables have left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import compress, count
from typing import TYPE_CHECKING, Any, ClassVar

from pyiceberg.exceptions import NoSuchTableError

from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import S3Address
from destination_datalake.config.tables import TAKEN_FOLDERS, Retention
from destination_datalake.erasure.columns import TableColumns, saved_schema, with_zone_of
from destination_datalake.erasure.dropped import table_folders, unused_folders
from destination_datalake.erasure.model import ErasedObject, ErasureTarget, Outcome, Request
from destination_datalake.erasure.objects import Group, Objects, in_batches, stored_in
from destination_datalake.errors import ConfigError, ConnectorError, Failure
from destination_datalake.files.erase import NotErased
from destination_datalake.files.scan import distinct_rows
from destination_datalake.partitioning.spec import Bucket
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import WIDER
from destination_datalake.schema.iceberg import iceberg_type
from destination_datalake.tables.fencing import TOKEN_PROPERTY, FencingToken
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, known_columns, table_location
from destination_datalake.tables.hive.content import FolderState, PendingOverwrite, folders_in_use, other_folders
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partitions import RegisteredPartitions, location_of
from destination_datalake.tables.hive.scheme import PartitionScheme, has_registered_partitions
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.erasure.erase import ErasureRequest, TableErasure, UnreferencedFiles
from destination_datalake.tables.iceberg.erasure.plan import (
    IdColumn,
    NoSuchColumn,
    manifest_reveals_id,
    partition_fields,
)
from destination_datalake.tables.iceberg.maintenance.cleanup import add_latest, is_of_a_table
from destination_datalake.tables.iceberg.maintenance.references import MaintenanceSkipped, References, is_inside
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement
from destination_datalake.tables.iceberg.snapshots.files import Incomplete
from destination_datalake.tables.naming import GENERATIONS_SUFFIX, TableNaming, TableOwner
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict, TableName

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.erasure.ledger import Ledger
    from destination_datalake.files.erase import StoredObject
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.schema.types import Field


# --- Hive tables ------------------------------------------------------------------------------------------------------
# The erasure rewrites each file that contains rows with one of the IDs, whether or not readers see the file.
#
# A rewritten file keeps its name, so each reader sees either its old or its new content. The table keeps its location
# and its partitions, and concurrent writes continue. However, a sync copies files when it widens a column or adopts a
# pending overwrite, and may have read a file before the rewrite. The erasure fences such a sync, so that it cannot
# commit the copy. The next sync continues the work of the fenced sync.


class HiveTarget(Objects):
    """All files of a Hive table, whether or not readers see them.

    Readers do not see replaced files, the files of a pending overwrite, or files that failed syncs have left.
    """

    content = "rows"

    kind: ClassVar[str] = "Hive table"

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table, f"{self.kind} {table}")
        self._glue_table = GlueTable(table, self.access)

    @property
    def access(self) -> AwsAccess:
        """Return the access to AWS for the table's files."""
        return self.request.catalog.access_of(self.table)

    def require(self) -> None:
        """Raise ConfigError if the table is partitioned by the column, because folder names then contain IDs.

        Also raises ConfigError if the column's type cannot represent an ID.
        """
        table_input, column = self._glue_table.find(), self.request.column
        if table_input is not None and (key := _revealing_key(table_input, column)) is not None:
            raise ConfigError(
                f"Cannot erase rows by --column {column}: table {self.table} is partitioned by this column (partition "
                f"key {key}), so folder names contain IDs. Write the stream to another table with another "
                "partition_by. Drop this table, and run the command again. The command also searches the files of "
                "dropped tables. Nothing was changed."
            )
        super().require()

    def columns(self) -> tuple[Field, ...]:
        """Return the column with its path in the table's rows, or an empty tuple if the column does not exist."""
        column = TableColumns.load(self.table, self.request).in_table(self.request.column)
        return () if column is None else (column,)

    @property
    def folders(self) -> Sequence[str]:
        """Return the folders that contain, or have contained, files of the table.

        No folder in the result contains another one. If the table was dropped, omits folders that overlap the location
        of another table, because the rows of that table must stay.
        """
        if (table_input := self._glue_table.find()) is not None:
            return outermost(self._folders(table_input))
        dropped = _folders_after_drop(self.table, self.request)
        separate = self._separate(dropped)
        if skipped := dropped.difference(separate):
            self.stats.note(
                f"{self.name}: The table was dropped, and its folders {', '.join(sorted(skipped))} were skipped, "
                "because another table uses them."
            )
        return outermost(separate)

    def _separate(self, folders: Iterable[str]) -> list[str]:
        """Return those folders of a dropped table that overlap the location of no existing table.

        Also adds these folders to the request's mask.
        """
        separate = unused_folders(self.request.catalog, self.table.database, folders)
        self.request.mask.dropped |= {*separate}
        return separate

    def groups(self) -> Iterator[Group]:
        """Yield the table's files, each in a group of its own."""
        for folder in self.folders:
            yield from ((file,) for file in stored_in(self.access, folder) if self.includes(file.uri))

    def find(self) -> Iterator[ErasedObject]:
        """Yield each object that contains rows with one of the IDs or is unreadable.

        Yields files of partitions outside the table as "left". Raises the same errors as `Objects.find`.
        """
        yield from super().find()
        yield from self._found_outside()

    def erase(self) -> Iterator[ErasedObject]:
        """Rewrite the table's files without the rows that contain one of the IDs. Yield each with its outcome.

        Yields files of partitions outside the table as "left". Raises the same errors as `Objects.erase`.
        """
        yield from super().erase()
        yield from self._found_outside()

    def finish(self) -> bool:
        """Fence a running sync that may have copied files before the erasure rewrote them.

        Deletes the sync's fencing token from the table, so that the next commit of the sync fails. Returns False if
        there was such a sync, because the erasure must then search the files again.
        """

        def fence(table_input: TableInput) -> bool:
            parameters = table_input["Parameters"]
            is_copied = FolderState.DEAD in other_folders(table_input).values()
            may_be_copied = self.may_have_rewritten and PendingOverwrite.load(table_input) is not None
            if FencingToken.held(parameters) is None or not (is_copied or may_be_copied):
                return False
            del parameters[TOKEN_PROPERTY]
            return True

        if self._glue_table.find() is None or not self._glue_table.update(fence):
            return True
        self.stats.notes.append(
            f"Fenced a sync that was copying files of table {self.table} or had failed during the copy. The next sync "
            "continues. If the fenced sync is still running, wait until it ends, and run the command again."
        )
        return False

    # Folders

    def _folders(self, table_input: TableInput) -> Iterator[str]:
        """Yield the S3 URIs of all folders that may contain files of the table."""
        stream = stream_of(self.table, table_input, self.request)
        root, generations = table_folders(self.request.config, self.table, stream)
        if stream is not None:
            yield from (root, generations)
        location = table_location(table_input)
        yield from (location, f"{location}{GENERATIONS_SUFFIX}")
        for folder in {*folders_in_use(table_input), *other_folders(table_input)} - {location}:
            # Other programs can change or copy the parameters, so the folder may belong to another table.
            if Folders(root, self.access).owns(folder, location):
                yield folder
            else:
                self.stats.note(
                    f"Skipped the folder {folder}, although the parameters of table {self.table} name it, because this "
                    "connector does not create folders of the table there."
                )
        if has_registered_partitions(table_input):
            folders = self._partition_folders()
            yield from (folder for folder in folders if not self._is_outside(folder, location))

    def _partition_folders(self) -> Iterator[str]:
        for entry in RegisteredPartitions(self.table, self.access).entries(with_columns=False):
            yield location_of(entry)

    def _is_outside(self, folder: str, location: str) -> bool:
        """Return whether a partition's folder is in neither the table's location nor under the connector's prefix."""
        return not folder.startswith((f"{location}/", self.request.config.uri("")))

    def _found_outside(self) -> Iterator[ErasedObject]:
        """Yield each file that contains rows with one of the IDs, in partitions outside the table, as "left".

        Also yields unreadable files, and folders that could not be listed. Raises ConnectorError and AWS errors.
        """
        table_input = self._glue_table.find()
        if table_input is None or not self._columns or not has_registered_partitions(table_input):
            return
        location, groups = table_location(table_input), list[Group]()
        for folder in outermost(folder for folder in self._partition_folders() if self._is_outside(folder, location)):
            try:
                groups += [(file,) for file in stored_in(self.access, folder)]
            except Exception as error:
                failure = explain(error, doing="list the files in", resource=f"{folder}/")
                if failure is None or failure.type != "config_error":
                    raise
                yield ErasedObject(f"{folder}/", -1, outcome="left", reason=f"{_OUTSIDE}. {failure.message}")
        for result in (result for batch in in_batches(groups) for result in self._run(batch, write=False)):
            if isinstance(result, NotErased):
                reason = f"{_OUTSIDE}. {result.failure.message}"
                yield ErasedObject(result.object.uri, -1, outcome="left", reason=reason)
            elif result.matches:
                yield ErasedObject(result.object.uri, result.matches, outcome="left", reason=_OUTSIDE)

    def includes(self, uri: str) -> bool:
        """Return whether an object in one of the target's folders belongs to the table.

        The table's location may contain other folders of the connector, whose objects do not belong to the table.
        """
        return not uri.startswith(tuple(f"{self.request.config.uri(folder)}/" for folder in TAKEN_FOLDERS))


_OUTSIDE = (
    "the folder of this partition is outside the table's folder and the connector's prefix, so other programs may "
    "write to it, and the command does not change it. Erase the rows with the program that writes these files, or drop "
    "the partition and delete its files with all versions. Then run the command again"
)


def stream_of(table: TableName, table_input: TableInput | None, request: Request) -> StreamId | None:
    """Return the stream whose records the table contains, or None if the stream is unknown.

    For a dropped table (`table_input` is None), reads the stream from the table's description in `_schema/`.
    """
    if table_input is not None:
        owner = TableOwner.load(table_input["Parameters"])
        return None if owner is None else owner.stream
    stream_name: str = saved_schema(table, request).get("stream", "")
    return TableNaming.from_config(request.config).candidates(stream_name).get(table)


def _folders_after_drop(table: TableName, request: Request) -> set[str]:
    """Return the known folders under the prefix in which a dropped table had files."""
    files = saved_schema(table, request).get("files", "")
    stream = stream_of(table, None, request)
    folders = {files.rstrip("/"), *(table_folders(request.config, table, stream) if stream is not None else ())}
    return {folder for folder in folders if folder.startswith(request.config.uri(""))}


def outermost(folders: Iterable[str]) -> list[str]:
    """Return those of `folders` that are not inside another one of them, sorted and without duplicates."""
    outer: list[str] = []
    for folder in sorted(set(folders), key=lambda folder: f"{folder}/"):
        if not outer or not f"{folder}/".startswith(f"{outer[-1]}/"):
            outer.append(folder)
    return outer


def _revealing_key(table_input: TableInput, column: str) -> str | None:
    """Return the name of a partition key whose values reveal values of the column, or None if no key does.

    The values of a bucket key are hashes, which reveal nothing.
    """
    keys = {key["Name"].lower(): key["Name"] for key in table_input.get("PartitionKeys") or ()}
    scheme = PartitionScheme.recorded(table_input, (*METADATA_COLUMNS, *known_columns(table_input)))
    for key in scheme.folders.keys if scheme is not None else ():
        if ".".join(key.field.source).lower() == column.lower() and not isinstance(key.field.transform, Bucket):
            return key.field.name
    return keys.get(column.lower())


# --- Iceberg tables ---------------------------------------------------------------------------------------------------
# The erasure covers all branches and snapshots, and unreferenced files.


_MAX_PARTITION_VALUES = 10_000
"""Maximum number of IDs that a search compares with partition values. With more IDs, it searches the files of all
partitions."""


_PREFIXES = "prefixes"
"""The name under which the ledger stores the prefixes of marked objects, with the name of the table."""


class IcebergTarget(ErasureTarget):
    """An Iceberg table: its branches and snapshots, and the unreferenced files in its folder.

    If `may_lack_column` is false, all methods raise an error if the table does not contain the column, because the user
    may have misspelled the column's name.
    """

    def __init__(self, table: TableName, request: Request, ledger: Ledger, *, may_lack_column: bool = False) -> None:
        super().__init__(request.display_name(f"Iceberg table {table}"))
        self.table = table
        self.request = request
        self.ledger = ledger
        self.may_lack_column = may_lack_column
        self._erasure: TableErasure | None = None

    def require(self) -> None:
        """Raise ConnectorError if the table does not exist, or if rows cannot be erased from it. Changes nothing."""
        if self.request.catalog.find(self.table) is None:
            raise ConfigError(f"Table {self.table} does not exist in the catalog. Nothing was changed.")
        with as_failures(self.table):
            if (erasure := self._begin()) is not None:
                erasure.require()
                self._update_stats(erasure)

    def find(self) -> Iterator[ErasedObject]:
        """Yield each file that contains rows with one of the IDs, and the metadata that reveals an ID.

        Includes files that no snapshot references. Raises ConnectorError.
        """
        with as_failures(self.table):
            erasure = self._erasure or self._begin()
            if erasure is None or (result := erasure.find()) is None:
                return
            plan, matches = result
            self._update_stats(erasure)
            branches = {path: name for name, head in plan.heads.items() for path in head}
            kept_files = erasure.kept(plan, matches)
            for path, rows in sorted(matches.items()):
                origin = f"branch {branches[path]}" if path in branches else "former snapshots"
                outcome: Outcome = "kept" if path in kept_files else "found"
                yield ErasedObject(path, rows.count, outcome=outcome, reason=f"in {origin}")
            for snapshot_id in sorted(plan.revealing - erasure.kept_snapshots(plan)):
                snapshot = plan.metadata.snapshot_by_id(snapshot_id)
                assert snapshot is not None
                yield ErasedObject(snapshot.manifest_list, -1, reason="manifest entries of removed files contain an ID")
            for file in self._unreferenced_files(erasure).find(datetime.now(UTC)):
                reason = file.obstacle or "no snapshot references this file"
                yield ErasedObject(file.uri, file.rows, reason=reason)

    def erase(self) -> Iterator[ErasedObject]:
        """Erase the rows with one of the IDs. Yield each file that contained such rows, with its outcome.

        One commit erases the rows from all branches. Afterwards, this method expires the old snapshots and deletes the
        unreferenced files that contain the rows. Raises ConnectorError.
        """
        with as_failures(self.table):
            erasure = self._erasure or self._begin()
            self._erasure = None  # The second search reads everything again.
            if erasure is None:
                return
            files = erasure.run(self._mark_for_deletion)
            self.stats.distinct_rows = distinct_rows(file.raw_ids for file in files)
            for file in files:
                yield ErasedObject(
                    file.uri,
                    file.rows,
                    file.rows,
                    "removed" if file.new is None else "rewritten",
                    () if file.new is None else (file.new,),
                )
            self.stats.snapshots_expired += erasure.snapshots_expired
            self._update_stats(erasure)
            yield from self._erase_unreferenced(erasure)

    def _erase_unreferenced(self, erasure: TableErasure) -> Iterator[ErasedObject]:
        unreferenced = self._unreferenced_files(erasure)
        files = [*unreferenced.find(datetime.now(UTC))]
        deleted = {file.uri for file in unreferenced.delete(files)} if any(file.deletable for file in files) else set()
        for file in files:
            if file.uri in deleted:
                rows = max(file.rows, 0)
                self.stats.distinct_rows = None  # The table may have contained copies of these rows.
                yield ErasedObject(file.uri, rows, rows, "removed")
            # The next targets may erase files outside the table's folder. If not, the second search finds these files.
            elif not file.deletable and not file.obstacle:
                until = file.since + unreferenced.age
                reason = (
                    "no snapshot references this file, but a running sync may still commit it. Run the command again "
                    f"after {until:%Y-%m-%d %H:%M} UTC. The command then deletes the file if it is still unreferenced"
                )
                yield ErasedObject(file.uri, file.rows, outcome="left", reason=reason)

    def _mark_for_deletion(self, uris: Sequence[str], folder: S3Address) -> None:
        """Record in the ledger that the erasure will delete these objects of the table in `folder`.

        Also records prefixes of the objects' URIs without IDs, so that a later search finds the objects.
        """
        uris = [*_normalised(uris)]
        self.ledger.mark_for_deletion(uris)
        prefixes = {
            f"{folder}/"
            if is_inside(uri, folder) and is_of_a_table(S3Address.parse(uri).key, folder)
            else self.request.mask.uri(uri).partition("…")[0]
            for uri in uris
        }
        self.ledger.append(_PREFIXES, [(str(self.table), prefix) for prefix in sorted(prefixes)])

    def _begin(self) -> TableErasure | None:
        """Load the table, and return the object that erases rows from it.

        Returns None if the table does not exist, or if the column does not exist and `may_lack_column` is true.
        """
        try:
            self._erasure = table_erasure(self.table, self.request)
        except NoSuchTableError:
            return None
        except NoSuchColumn:
            if not self.may_lack_column:
                raise
            self.stats.note(f"{self.name}: column {self.request.column} does not exist, so nothing was searched.")
            return None
        return self._erasure

    def _unreferenced_files(self, erasure: TableErasure) -> UnreferencedFiles:
        options = self.request.config.maintenance
        days = (options if isinstance(options, Retention) else Retention()).orphan_retention_days
        prefixes = {prefix for table, prefix in self.ledger.lines(_PREFIXES) if table == str(self.table)}
        return UnreferencedFiles(erasure, timedelta(days=days), self.ledger.are_marked, sorted(prefixes))

    def _update_stats(self, erasure: TableErasure) -> None:
        # The second search reads fewer objects, so the report shows the number of the first search.
        self.stats.objects_read = max(self.stats.objects_read, erasure.files_searched)
        self.stats.objects = max(self.stats.objects, erasure.files)


def _normalised(uris: Iterable[str]) -> Iterator[str]:
    """Yield each URI as listings of S3 spell it, because other engines write s3a and s3n. Skip URIs outside S3."""
    for uri in uris:
        with suppress(ValueError):
            yield str(S3Address.parse(uri))


def table_erasure(name: TableName, request: Request) -> TableErasure:
    """Load an Iceberg table, and return the object that erases rows from it.

    Raises NoSuchTableError, NoSuchColumn, and ConfigError if the column's type cannot represent an ID.
    """
    table = TableOperations(name, request.catalog).load()
    column = IdColumn.named(request.column, name, table.schema())
    request.mask.fields |= partition_fields(column, table.metadata)
    ids = request.ids(column.type, name)
    values: Sequence[Any] | None = None
    if len(ids) <= _MAX_PARTITION_VALUES and request.redirected_from is None:
        values = request.file.values(column.type, request.column)
    erasure_request = ErasureRequest(
        request.id,
        ids,
        values,
        request.config.format.compression_codec,
        None if request.keep_history is None else timedelta(days=request.keep_history),
        request.drop_tags,
    )
    return TableErasure(name, request.catalog, request.executors, column, erasure_request)


@contextmanager
def as_failures(table: TableName) -> Iterator[None]:
    """Convert errors of table operations in the `with` block to ConnectorError, with a message for the user."""
    try:
        yield
    except TableConflict as error:
        raise ConnectorError(Failure(str(error), str(error), "config_error")) from error
    except (TableBusy, CommitStateUnknown) as error:
        raise ConnectorError(Failure(str(error), str(error), "transient_error")) from error
    except MaintenanceSkipped as error:
        message = f"Cannot erase rows from table {table}: {error}."
        raise ConnectorError(Failure(message, str(error), "config_error")) from error
    except (Incomplete, Disagreement) as error:
        message = (
            f"Table {table}: the erasure stopped before all objects with these rows were deleted: {error}. The table's "
            "branches and snapshots may no longer contain the rows. This error may be a bug in the connector. Report "
            "it with the named file. If another engine can read the table, rewrite its manifests with that engine "
            "(Spark: the procedure rewrite_manifests), and run the command again."
        )
        raise ConnectorError(Failure(message, str(error), "system_error")) from error


# --- Dropped tables ---------------------------------------------------------------------------------------------------
# Dropped Iceberg tables leave files that no catalog references. The erasure rewrites their data files in place, like
# the files of Hive tables, and deletes manifests that reveal an ID. It skips folders that overlap the location of an
# existing table, and objects to which an existing table of the same name refers.


class DroppedTableTarget(HiveTarget):
    """The files that dropped Iceberg tables of one name have left."""

    kind = "Dropped Iceberg tables named"

    def require(self) -> None:
        """Raise ConnectorError if the column's type cannot represent an ID."""
        if self.folders and self._columns:
            _ = self._ids

    def columns(self) -> tuple[Field, ...]:
        """Return the column with its path in the tables' rows, or an empty tuple if the column did not exist."""
        return with_zone_of(self.request.types.get(self.table), super().columns())

    @cached_property
    def folders(self) -> Sequence[str]:
        """Return the folders of the dropped tables, except folders that overlap the location of an existing table."""
        return outermost(self._separate(_folders_after_drop(self.table, self.request)))

    def includes(self, uri: str) -> bool:
        """Return whether an object is a data file."""
        return super().includes(uri) and uri.endswith((".parquet", ".jsonl", ".jsonl.gz"))

    def erase(self) -> Iterator[ErasedObject]:
        """Rewrite the files without the rows, and delete the metadata that reveals an ID. Yield these objects."""
        if self.request.catalog.find(self.table) is not None:
            # Since the search, the erasure of the existing table has removed references to files in these folders.
            self._search = None
        yield from super().erase()

    def groups(self) -> Iterator[Group]:
        """Yield the data files to which no table of this name refers, each in a group of its own."""
        return ((stored,) for stored in self._unreferenced() if self.includes(stored.uri))

    def metadata(self) -> Iterator[ErasedObject]:
        """Yield the manifests that reveal an ID, and unreadable manifests with the outcome "left"."""
        for stored, is_readable in [*self.revealing(self._unreferenced())]:
            if is_readable:
                yield ErasedObject(stored.uri, -1, reason="metadata of a dropped table that contains an ID")
            else:
                yield ErasedObject(stored.uri, -1, outcome="left", reason=_UNREADABLE)

    def _unreferenced(self) -> Iterator[StoredObject]:
        """Yield the objects in the folders to which no existing table of this name refers.

        The table may have moved to another location, and may still use files in its former folder. Raises
        ConnectorError and AWS errors.
        """
        # List first: a file that the table adds after the listing is new, so the listing does not contain it.
        stored = [stored for folder in self.folders for stored in stored_in(self.access, folder)]
        if not stored:
            return
        operations = TableOperations(self.table, self.request.catalog)
        with as_failures(self.table), suppress(NoSuchTableError):
            table = operations.load()
            references = References(table.io, self.access.client("s3"))
            add_latest(references, table, operations)
            are_dead = references.are_unreferenced([object_.uri for object_ in stored])
            stored = [*compress(stored, are_dead)]
        yield from stored

    def finish(self) -> bool:
        """Return True. No sync writes to a dropped table, so there is no sync to fence."""
        return True

    def revealing(self, objects: Iterable[StoredObject]) -> Iterator[tuple[StoredObject, bool]]:
        """Yield each manifest among `objects` that reveals an ID or is unreadable, and whether it is readable."""
        s3 = self.access.client("s3")
        for stored in objects:
            if self._columns and stored.uri.endswith(".avro"):
                reveals_id = manifest_reveals_id(s3, stored.uri, self._types, self._ids, version=stored.version)
                if reveals_id is not False:
                    yield stored, reveals_id is not None

    @cached_property
    def _types(self) -> Sequence[IcebergType]:
        types = [column.type for column in self._columns]
        narrower = [type_ for type_, wider in WIDER.items() if wider in types]
        return [iceberg_type(type_, count().__next__) for type_ in (*types, *narrower)]


_UNREADABLE = (
    "metadata of a dropped table that is not an Iceberg manifest or is corrupted, so the connector cannot determine "
    "whether the object contains an ID. If you do not need the object, delete it. Then run the command again"
)
