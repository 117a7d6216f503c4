"""Plans an erasure for one state of a table.

An erasure removes all rows whose value in one column, the ID column, is among given IDs. The plan contains the files
and snapshots that may contain one of these IDs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField, PrimitiveType, StructType

from destination_datalake.aws.objects import MAX_FILE_BYTES, OversizedFile, get, is_missing
from destination_datalake.errors import ConfigError
from destination_datalake.files.dedup.tasks import IndexPart
from destination_datalake.files.scan import FileMatches
from destination_datalake.tables.iceberg.commit import is_fence
from destination_datalake.tables.iceberg.compatibility import incompatibility
from destination_datalake.tables.iceberg.maintenance.references import is_garbage_collected
from destination_datalake.tables.iceberg.pyiceberg_internals import ManifestContents, deleted_entries
from destination_datalake.tables.iceberg.rework import Unsuitable, require_parquet, rewritable_schema
from destination_datalake.tables.iceberg.schema import arrow_field
from destination_datalake.tables.iceberg.snapshots.files import (
    BOUND_ERRORS,
    BranchFiles,
    KeyColumns,
    LiveFile,
    as_stored,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyiceberg.table.snapshots import Snapshot

    from destination_datalake.files.ids import Ids
    from destination_datalake.tables.table import TableName

MatchesByFile = Mapping[str, FileMatches]
"""The rows to erase in each file that contains such rows, by the file's URI."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The files of a table that may contain rows to erase, and the snapshots that refer to these files.

    `candidates` contains the data files and delete files, by path, that may contain such rows in any snapshot. Jobs
    search these files. `of_snapshot` contains the paths of each snapshot's candidates, by snapshot ID. `heads` contains
    the data files among the candidates in the head snapshot of each branch, by branch name and path. A manifest is
    revealing if it contains one of the IDs in the entry of a removed file. `revealing_manifests` contains the paths of
    these manifests, and `revealing` the IDs of the snapshots that refer to such a manifest.
    """

    table: Table
    schema: pa.Schema
    candidates: Mapping[str, LiveFile]
    of_snapshot: Mapping[int, frozenset[str]]
    heads: Mapping[str, Mapping[str, LiveFile]]
    live: Mapping[str, tuple[LiveFile, ...]]
    """All live data files in the head snapshot of each branch, by branch name."""
    revealing: frozenset[int]
    revealing_manifests: frozenset[str]
    files: int
    """The number of distinct data files in all snapshots."""

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata at the time of the plan."""
        return self.table.metadata

    def snapshots_with_rows(self, matches: MatchesByFile) -> dict[int, Snapshot]:
        """Return the snapshots that refer to a file with matching rows or to a revealing manifest, by snapshot ID."""
        return {
            snapshot.snapshot_id: snapshot
            for snapshot in self.metadata.snapshots
            if snapshot.snapshot_id in self.revealing or not self.of_snapshot[snapshot.snapshot_id].isdisjoint(matches)
        }

    def branches(self, matches: MatchesByFile) -> list[str]:
        """Return the names of the branches whose head is in the result of `snapshots_with_rows`."""
        snapshots_with_rows = self.snapshots_with_rows(matches)
        return sorted(
            name
            for name, ref in self.metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.BRANCH and ref.snapshot_id in snapshots_with_rows
        )

    def tags(self, matches: MatchesByFile, kept_since: datetime | None = None) -> list[str]:
        """Return the names of the tags on snapshots in the result of `snapshots_with_rows`.

        Leaves out fence tags, which this connector sets to make concurrent commits conflict, and tags on snapshots that
        were made at or after `kept_since`.
        """
        snapshots_with_rows = self.snapshots_with_rows(matches)
        return sorted(
            name
            for name, ref in self.metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.TAG
            and not is_fence(name, ref)
            and ref.snapshot_id in snapshots_with_rows
            and not is_kept(snapshots_with_rows[ref.snapshot_id], kept_since)
        )


def is_kept(snapshot: Snapshot, since: datetime | None) -> bool:
    """Return whether an erasure keeps a snapshot, because it was made at or after `since`. None keeps no snapshot."""
    return since is not None and snapshot.timestamp_ms >= since.timestamp() * 1000


class Planner:
    """Plans an erasure, and plans it again after another writer has changed the table.

    The planner caches the entries that it has read, because manifests are immutable.
    """

    def __init__(self, column: IdColumn) -> None:
        self._column = column
        self._reader = BranchFiles([column.field.field_id])
        self._may_have: dict[str, bool] = {}
        self._reveals: dict[str, bool] = {}

    def plan(self, table: Table, id_filter: IdFilter) -> TablePlan:
        """Return the plan for the present state of the table.

        Raises Unsuitable if the connector cannot rewrite the table, TableConflict if a manifest cannot be read
        completely, and errors from reading metadata.
        """
        metadata = table.metadata
        schema = _require(metadata)
        candidates: dict[str, LiveFile] = {}
        of_snapshot: dict[int, frozenset[str]] = {}
        revealing, revealing_manifests, paths = set[int](), set[str](), set[str]()
        heads = {
            name: ref.snapshot_id
            for name, ref in metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.BRANCH
        }
        live_of: dict[int, list[LiveFile]] = {}
        # Search all snapshots, not only the heads, because time travel still reads the others.
        for snapshot in metadata.snapshots:
            live = self._reader.at(snapshot, table.io)
            manifests = snapshot.manifests(table.io)
            deletes = self._reader.deletes_in(manifests, table.io)
            equality = [file for file in deletes if file.entry.content == DataFileContent.EQUALITY_DELETES]
            # Former snapshots may contain equality deletes: if one of these files contains an ID, the whole snapshot
            # expires.
            if equality and snapshot.snapshot_id in heads.values():
                raise Unsuitable(
                    "another engine added equality deletes, which may contain the IDs. Compact the table (Athena: "
                    "OPTIMIZE; Spark: rewrite_data_files with delete-file-threshold 1), and run the command again"
                )
            # Delete files may contain IDs too: equality deletes contain column values, and position deletes of other
            # engines may contain copies of deleted rows.
            with_rows = {file.path: file for file in (*live, *deletes) if self._may_have_rows(file, id_filter)}
            require_parquet(with_rows.values())
            candidates |= with_rows
            of_snapshot[snapshot.snapshot_id] = frozenset(with_rows)
            paths |= {file.path for file in live}
            if snapshot.snapshot_id in heads.values():
                live_of[snapshot.snapshot_id] = live
            paths_with_ids = {
                manifest.manifest_path for manifest in manifests if self._reveals_id(manifest, id_filter, table.io)
            }
            if paths_with_ids:
                revealing.add(snapshot.snapshot_id)
                revealing_manifests |= paths_with_ids
        live_of_heads = {name: tuple(live_of[id_]) for name, id_ in heads.items()}
        return TablePlan(
            table,
            schema,
            candidates,
            of_snapshot,
            {
                name: {file.path: file for file in live if file.path in candidates}
                for name, live in live_of_heads.items()
            },
            live_of_heads,
            frozenset(revealing),
            frozenset(revealing_manifests),
            len(paths),
        )

    def _may_have_rows(self, file: LiveFile, id_filter: IdFilter) -> bool:
        # Snapshots repeat the entry of a file, so the result of the first entry holds for all of them.
        if file.path not in self._may_have:
            self._may_have[file.path] = id_filter.rows(file.entry)
        return self._may_have[file.path]

    def _reveals_id(self, manifest: ManifestFile, id_filter: IdFilter, io: FileIO) -> bool:
        """Return whether a manifest contains one of the IDs in the entry of a removed file.

        The ID may be a bound or a partition value. Skips reading a manifest that counts no removed files.
        """
        # None means that an old writer recorded no counts, so the manifest is read.
        if manifest.deleted_files_count == 0:
            return False
        path = manifest.manifest_path
        if path not in self._reveals:
            self._reveals[path] = id_filter.reveals_id(entry.data_file for entry in deleted_entries(manifest, io))
        return self._reveals[path]


def _require(metadata: TableMetadata) -> pa.Schema:
    if not is_garbage_collected(metadata):
        raise Unsuitable(
            "its property gc.enabled is false, so other tables may use its files, and the connector must not delete "
            "these files. If no other table uses the files, remove the property"
        )
    if (reason := incompatibility(metadata)) is not None:
        raise Unsuitable(reason)
    return rewritable_schema(metadata)


# --- the ID column, and the IDs that metadata contains ----------------------------------------------------------------


class NoSuchColumn(ConfigError):
    """The table has no column with the requested name."""


@dataclass(frozen=True, slots=True)
class IdColumn:
    """The column whose values are compared with the IDs: a top-level column, or a field inside structs.

    `path` contains the names from the top-level column down to `field`, which is the field with the IDs.
    """

    path: tuple[str, ...]
    field: NestedField
    arrow: pa.Field[Any]
    """The top-level column as an Arrow field with field IDs. Every struct in it contains only the field on the path."""

    @classmethod
    def named(cls, column: str, table: TableName, schema: Schema) -> Self:
        """Return the column with the name or dotted path `column`.

        Raises NoSuchColumn if the table has no such column, and ConfigError if this connector does not support the
        column's type or the type is not primitive.
        """
        path = _path_to(column, schema.fields, ())
        if path is None:
            names = ", ".join(field.name for field in schema.fields)
            raise NoSuchColumn(
                f"--column {column}: table {table} has no such column. Its columns are {names}. Specify a nested "
                "field by its path, such as user.id. Nothing was changed."
            )
        if not isinstance(path[-1].field_type, PrimitiveType):
            raise ConfigError(
                f"--column {column}: in table {table}, this column has type {path[-1].field_type}, which is not a "
                "single value. Specify a nested field by its path, such as user.id. Nothing was changed."
            )
        try:
            return cls(tuple(field.name for field in path), path[-1], _projected(path))
        except KeyError:
            raise ConfigError(
                f"--column {column}: in table {table}, this column has type {path[-1].field_type}, which this "
                "connector does not support. Nothing was changed."
            ) from None

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of `field`, which is also the type of the IDs."""
        type_: pa.DataType = self.arrow.type
        while isinstance(type_, pa.StructType):
            type_ = type_.field(0).type
        return type_


def _path_to(
    path: str, fields: Iterable[NestedField], above: tuple[NestedField, ...]
) -> tuple[NestedField, ...] | None:
    """Return the fields on a dotted path, or None if no field has this path. A field's own name may contain dots."""
    for field in fields:
        if field.name == path:
            return (*above, field)
        if isinstance(field.field_type, StructType) and path.startswith(f"{field.name}."):
            nested_path = path[len(field.name) + 1 :]
            if (nested_fields := _path_to(nested_path, field.field_type.fields, (*above, field))) is not None:
                return nested_fields
    return None


def _projected(path: Sequence[NestedField]) -> pa.Field[Any]:
    """Return the first field of the path as an Arrow field whose structs contain only the fields on the path."""
    field = path[-1]
    for outer in reversed(path[:-1]):
        field = outer.model_copy(update={"field_type": StructType(field)})
    return arrow_field(field)


def partition_fields(column: IdColumn, metadata: TableMetadata) -> set[str]:
    """Return the lower-case names of the partition fields, in any partition spec, whose source is the ID column."""
    fields = (field for spec in metadata.specs().values() for field in spec.fields)
    return {field.name.lower() for field in fields if field.source_id == column.field.field_id}


class IdFilter:
    """Determines from manifest entries which files may contain a row with one of the IDs.

    Also determines which manifest entries contain an ID as a bound or a partition value.
    """

    def __init__(self, column: IdColumn, ids: Ids, few: Sequence[Any] | None, metadata: TableMetadata) -> None:
        """Prepare the filter for the given IDs. `few` contains the same IDs as Python values.

        If there are too many IDs, `few` is None. The filter then compares the bounds of a file, but not its partition.
        """
        self._column = column
        self._ids = ids
        self._metadata = metadata
        self._keys = KeyColumns.for_fields((column.field.field_id,), metadata.schema())
        self._ranges = [IndexPart(1, (bounds,)) for bounds in ids.ranges]
        self._values = None if few is None else [as_stored(value) for value in few]
        self._partitions: dict[int, list[tuple[int, frozenset[Any]]]] = {}

    def rows(self, file: IcebergFile) -> bool:
        """Return whether a file may contain a row with one of the IDs, according to its bounds and its partition."""
        # `rows` must return True if in doubt: a file that it leaves out is never searched.
        if not any(self._keys.may_have(file, bounds) for bounds in self._ranges):
            return False
        return all(file.partition[position] in values for position, values in self._partitions_of(file.spec_id))

    def reveals_id(self, files: Iterable[IcebergFile]) -> bool:
        """Return whether the manifest entry of any of the files contains one of the IDs.

        The ID may be a bound or a partition value. A file need not contain a row with this ID.
        """
        return _contain_id([value for file in files for value in self._revealed_values(file)], self._ids)

    def _revealed_values(self, file: IcebergFile) -> Iterator[Any]:
        id_, type_ = self._column.field.field_id, self._column.field.field_type
        assert isinstance(type_, PrimitiveType)
        for bounds in (file.lower_bounds, file.upper_bounds):
            if (bound := (bounds or {}).get(id_)) is not None:
                with suppress(*BOUND_ERRORS):
                    yield from_bytes(type_, bound)
        for position, field in enumerate(self._metadata.specs()[file.spec_id].fields):
            if field.source_id == id_ and isinstance(field.transform, IdentityTransform | TruncateTransform):
                value = file.partition[position]
                if value is not None:
                    yield value

    def _partitions_of(self, spec_id: int) -> list[tuple[int, frozenset[Any]]]:
        """Return the partition fields of a spec whose source is the ID column.

        Each item contains the position of a field in the spec, and the partition values of all IDs for this field.
        """
        if spec_id not in self._partitions:
            self._partitions[spec_id] = [*self._values_of(spec_id)]
        return self._partitions[spec_id]

    def _values_of(self, spec_id: int) -> Iterator[tuple[int, frozenset[Any]]]:
        id_, type_ = self._column.field.field_id, self._column.field.field_type
        # 0.0 and -0.0 are the same ID, but belong to different partitions.
        if self._values is None or isinstance(type_, FloatType | DoubleType):
            return
        for position, field in enumerate(self._metadata.specs()[spec_id].fields):
            if field.source_id != id_ or isinstance(field.transform, VoidTransform):
                continue
            try:
                transform = field.transform.transform(type_)
                yield position, frozenset(transform(value) for value in self._values)
            except Exception:  # PyIceberg does not support the transform for this type, so the field is not compared.
                continue


def manifest_reveals_id(
    s3: S3Client,
    uri: str,
    types: Sequence[IcebergType],
    ids: Ids,
    field_id: int | None = None,
    version: str | None = None,
) -> bool | None:
    """Return whether an unreferenced manifest or manifest list contains one of the IDs as a bound or partition value.

    This function decodes each bound as each of the `types`. With `field_id`, it compares only the bounds of that column
    in manifests. Otherwise, it compares the bounds of all columns. Return False if the object no longer exists. Return
    None if the object is damaged, is too large before or after decompression, or is neither a manifest nor a manifest
    list.
    """
    try:
        content = get(s3, uri, version=version, limit=MAX_FILE_BYTES)
    except OversizedFile:
        return None
    except s3.exceptions.ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchVersion" or is_missing(error, s3, uri):
            return False
        raise
    try:
        with ManifestContents(content, uri) as entries:
            return any(_entry_reveals_id(entry, types, ids, field_id) for entry in entries)
    except Exception:  # PyIceberg raises IndexError, KeyError, struct.error and others for invalid files.
        return None


def _entry_reveals_id(
    entry: ManifestEntry | ManifestFile, types: Sequence[IcebergType], ids: Ids, field_id: int | None
) -> bool:
    values, packed = list[Any](), list[bytes | None]()
    if isinstance(entry, ManifestEntry):
        file = entry.data_file
        for bounds in (file.lower_bounds, file.upper_bounds):
            packed += [bound for id_, bound in (bounds or {}).items() if field_id in (None, id_)]
        values += [file.partition[position] for position in range(len(file.partition))]
    else:
        for summary in entry.partitions or ():
            packed += [summary.lower_bound, summary.upper_bound]
    for type_, bound in product((type_ for type_ in types if isinstance(type_, PrimitiveType)), packed):
        if bound is not None:
            with suppress(*BOUND_ERRORS):
                values.append(from_bytes(type_, bound))
    return _contain_id([value for value in values if value is not None], ids)


def _contain_id(values: Sequence[Any], ids: Ids) -> bool:
    """Return whether one of the values is an ID. Values that the type of the IDs cannot represent are no IDs."""
    try:
        return bool(ids.contains(_array(values, ids.type)).any())
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Another engine wrote an invalid bound, or a value is a partition value of another column.
        return len(values) > 1 and any(_contain_id([value], ids) for value in values)


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array[Any]:
    """Return values from manifests as an Arrow array that `Ids.contains` can compare with IDs of this type."""
    stored = [as_stored(value) for value in values]
    if pa.types.is_temporal(type_) or pa.types.is_integer(type_):
        # Manifests store values of these types as integers (days or microseconds).
        return pa.array(stored, pa.int64())
    return pa.array(stored, type_)
