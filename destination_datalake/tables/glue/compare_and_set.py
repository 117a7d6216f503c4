"""PyIceberg's Glue catalog, extended to commit by compare-and-set and to keep settings of other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import Compressor
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from destination_datalake.errors import ConnectorError
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.glue.glue_table import TableInput, as_table_input
from destination_datalake.tables.iceberg.commit import COMMENT, INCOMPLETE_HISTORY, CommitStatus, updated
from destination_datalake.tables.iceberg.file_io import BackgroundWrites, LruCache, S3FileIO
from destination_datalake.tables.iceberg.untrusted import DataOnlyTable, location_provider

if TYPE_CHECKING:
    import pyarrow as pa
    from mypy_boto3_glue.type_defs import TableInputTypeDef, TableTypeDef

    from destination_datalake.aws.access import AwsAccess


_METADATA_LOCATION = "metadata_location"


class CompareAndSetGlueCatalog(GlueCatalog):
    """A PyIceberg Glue catalog for one commit to one table.

    The commit succeeds only if the table still has the metadata on which the commit was planned. The commit changes
    only those members of the Glue table that Iceberg defines. The catalog caches metadata files that this process has
    written or read.
    """

    _planned_on = ""
    _glue_table: TableTypeDef
    _loaded: TableTypeDef | None = None
    _added_snapshots: frozenset[int] = frozenset()
    _removed_properties: frozenset[str] = frozenset()

    def __init__(self, access: AwsAccess) -> None:
        super().__init__("glue", client=access.client("glue"))
        self._access = access
        self._document = MetadataDocument()
        self._writes = BackgroundWrites()

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return S3FileIO(self._access.client("s3"), self._writes)

    def _is_s3tables_database(self, database_name: str) -> bool:  # noqa: ARG002
        # PyIceberg would send a request to Glue for each new table and each commit. The answer is always False: this
        # connector creates tables with a location, and databases of S3 Tables reject a location.
        return False

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        document = Compressor.get_compressor(metadata_path).bytes_compressor()(
            self._document.serialize(metadata).encode()
        )
        # The name contains a new UUID, so the object cannot exist already.
        with io.new_output(metadata_path).create(overwrite=True) as output:
            output.write(document)

    def _get_glue_table(self, database_name: str, table_name: str) -> TableTypeDef:
        # The first call after `load_table` is the commit that was planned on it, so it uses that version and saves a
        # request. Every later call reads the table.
        glue_table, self._loaded = self._loaded or super()._get_glue_table(database_name, table_name), None
        # Copy the parameters, because PyIceberg changes them in the returned dict. It changes no other members.
        self._glue_table = {**glue_table, "Parameters": {**glue_table.get("Parameters", {})}}
        return glue_table

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load the table.

        A commit planned on the returned table replaces exactly this version, without loading the table again.
        """
        self._loaded = None
        table = super().load_table(identifier)
        self._loaded = self._glue_table
        return table

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create the table, and cache its metadata for the first commit."""
        table = super().create_table(identifier, schema, location, partition_spec, sort_order, properties)
        CachedMetadata(table.metadata, self._document).put(table.metadata_location)
        return DataOnlyTable(table.name(), table.metadata, table.metadata_location, table.io, self)

    def _convert_glue_to_iceberg(self, glue_table: TableTypeDef) -> Table:
        parameters = glue_table.get("Parameters", {})
        location = parameters.get(_METADATA_LOCATION, "")
        cached = METADATA.get(location) if is_iceberg(glue_table) else None
        if cached is not None:
            name = (glue_table["DatabaseName"], glue_table["Name"])
            return DataOnlyTable(name, cached.metadata, location, self._load_file_io(), self)
        table = super()._convert_glue_to_iceberg(glue_table)
        CachedMetadata(table.metadata, MetadataDocument()).put(location)
        return DataOnlyTable(table.name(), table.metadata, location, table.io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates that were planned on `table`.

        Raises CommitFailedException if another writer has committed since `table` was loaded. In this case, the commit
        has no effect, now or later. Also raises ConnectorError if the commit has no effect. Raises
        CommitStateUnknownException or an exception from botocore if the commit may have taken effect.
        """
        self._planned_on, self._table_uuid = table.metadata_location, table.metadata.table_uuid
        self._added_snapshots = frozenset(
            update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)
        )
        cached = METADATA.get(self._planned_on)
        self._document = cached.document if cached is not None else MetadataDocument()
        response = super().commit_table(table, requirements, updates)
        # The location is unchanged if the updates changed nothing.
        if response.metadata_location != self._planned_on:
            # Only the new metadata can be the base of a commit from here on.
            METADATA.forget(self._planned_on)
            CachedMetadata(response.metadata, self._document).put(response.metadata_location)
        return response

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        # Compare the whole metadata. PyIceberg's requirements cover only one branch, and no properties such as the
        # fencing token.
        if current_table is None or current_table.metadata_location != self._planned_on:
            raise CommitFailedException("Another writer has committed since this commit was planned")
        current = current_table.metadata
        # The comparison above implies these requirements. They stay as a second check of the same state.
        for requirement in requirements:
            requirement.validate(current)
        metadata = updated(current, updates, current_table.metadata_location)
        self._removed_properties = frozenset(current.properties) - frozenset(metadata.properties)
        # The number in the name is only for people and for `position_of`. The UUID in the name makes it unique.
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        provider = location_provider(metadata.location, metadata.properties)
        location = provider.new_table_metadata_file_location(version)
        return StagedTable(table_identifier, metadata, location, self._load_file_io(), self)

    def _update_glue_table(
        self, database_name: str, table_name: str, table_input: TableInputTypeDef, version_id: str
    ) -> None:
        """Update the Glue table if its version is still `version_id`.

        Raises errors in the same cases as `commit_table`.
        """
        # `_glue_table` is the table at `version_id`. The update fails if another writer has changed the table since.
        self._writes.wait()
        existing = as_table_input(self._glue_table)
        merged = cast("TableInputTypeDef", _merged(existing, dict(table_input), self._removed_properties))
        try:
            # If the process is killed before this request, the metadata file is an orphan, and the table is unchanged.
            super()._update_glue_table(database_name, table_name, merged, version_id)
        except (CommitFailedException, ClientError, BotoCoreError) as error:
            # botocore repeats a request whose response was lost. The repetition then conflicts with the first request.
            try:
                status = self._commit_status(database_name, table_name, merged["Parameters"][_METADATA_LOCATION])
            except ConnectorError as unreadable:
                # The table is unreadable, which does not show that the commit failed.
                raise CommitStateUnknownException(str(unreadable)) from error
            if status is CommitStatus.SUCCESS:
                return
            if status is CommitStatus.UNKNOWN and isinstance(error, CommitFailedException):
                raise CommitStateUnknownException(INCOMPLETE_HISTORY) from error
            raise

    def _commit_status(self, database_name: str, table_name: str, metadata_location: str) -> CommitStatus:
        """Search the table's history for the commit, and return whether the commit took effect.

        The search looks for the commit's metadata file and snapshots. The result is correct even if other commits
        followed. Returns UNKNOWN if the history no longer contains the metadata on which the commit was planned. Raises
        CommitFailedException if another program dropped and recreated the table, because the new table does not contain
        the commit.
        """
        current = self._convert_glue_to_iceberg(self._get_glue_table(database_name, table_name))
        if current.metadata.table_uuid != self._table_uuid:
            raise CommitFailedException("The table was dropped and created again since this commit was planned")
        history = {current.metadata_location, *(entry.metadata_file for entry in current.metadata.metadata_log)}
        if metadata_location in history or any(map(current.metadata.snapshot_by_id, self._added_snapshots)):
            return CommitStatus.SUCCESS
        return CommitStatus.FAILURE if self._planned_on in history else CommitStatus.UNKNOWN


def _merged(existing: TableInput, new: TableInput, removed_properties: frozenset[str]) -> TableInput:
    """Return the new table input, plus the members of the existing table input that Iceberg does not define.

    The result omits the properties in `removed_properties`. A changed comment also becomes the table's description.
    """
    storage = {**existing["StorageDescriptor"], **new["StorageDescriptor"]}
    # Glue's columns follow the Iceberg schema on each commit, which would lose comments that other programs have set.
    comments = {
        column["Name"].lower(): column.get("Comment") for column in existing["StorageDescriptor"].get("Columns", [])
    }
    storage["Columns"] = [_with_comment(column, comments.get(column["Name"].lower())) for column in storage["Columns"]]
    parameters = {key: value for key, value in new["Parameters"].items() if key not in removed_properties}
    merged = {**existing, **new, "StorageDescriptor": storage, "Parameters": parameters}
    comment = new["Parameters"].get(COMMENT)
    if comment is not None and comment != existing["Parameters"].get(COMMENT):
        merged["Description"] = comment
    return merged


def _with_comment(column: dict[str, Any], comment: str | None) -> dict[str, Any]:
    return {**column, "Comment": comment} if comment is not None else column


# --- Writing and caching metadata -------------------------------------------------------------------------------------


_NO_SNAPSHOTS = '"snapshots":[]'


class MetadataDocument:
    """Serializes the metadata of one table to JSON for successive commits.

    Snapshots make up nearly all of the JSON, and the previous document already contained most of them. So this class
    reuses the JSON string of each snapshot. It caches these strings only from the second document on, because many
    processes write just one document.
    """

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Snapshot, str]] | None = None

    def serialize(self, metadata: TableMetadata) -> str:
        """Return the metadata as JSON, exactly as PyIceberg writes it."""
        # Build a new mapping, so that expired snapshots drop out of the cache.
        cached_texts, texts = self._texts, dict[int, tuple[Snapshot, str]]()
        if cached_texts is None:
            self._texts = texts
            return metadata.model_dump_json()
        for snapshot in metadata.snapshots:
            cached = cached_texts.get(snapshot.snapshot_id)
            # Compare objects, not IDs: a snapshot whose parent has expired is another object with the same ID.
            text = cached[1] if cached is not None and cached[0] is snapshot else snapshot.model_dump_json()
            texts[snapshot.snapshot_id] = (snapshot, text)
        self._texts = texts  # Threads may overwrite each other's texts, but every text is correct.
        document = metadata.model_copy(update={"snapshots": []}).model_dump_json()
        # The first match is the array of snapshots, because JSON strings escape quotes and no other array has this
        # name.
        return document.replace(_NO_SNAPSHOTS, f'"snapshots":[{",".join(text for _, text in texts.values())}]', 1)


_BYTES_PER_SNAPSHOT = 6 * 1024
_BYTES_PER_TABLE = 64 * 1024


@dataclass(frozen=True, slots=True)
class CachedMetadata:
    """A table's metadata, with the JSON texts of snapshots that the next metadata file reuses."""

    metadata: TableMetadata
    document: MetadataDocument

    def put(self, location: str) -> None:
        """Cache the metadata under the location of its metadata file."""
        # Estimate the size. Only the snapshots grow in number.
        METADATA.put(location, self, _BYTES_PER_TABLE + _BYTES_PER_SNAPSHOT * len(self.metadata.snapshots))


METADATA: LruCache[CachedMetadata] = LruCache(64 << 20)
"""The metadata of tables by the location of the metadata file, about 64 MiB at most. The next commit reuses it."""
