"""Plans an erasure for one state of a table: finds the files and snapshots that may contain one of the IDs."""

from __future__ import annotations

import struct
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
"""The rows with one of the IDs that were found, by the URI of their file."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The files of a table that may contain the rows to erase, and the snapshots that refer to them.

    `candidates` contains these files for all snapshots, by path. Jobs search them. `of_snapshot` contains the
    candidates' paths by snapshot ID. `heads` contains the candidates on each branch's head. `revealing_manifests`
    contains the manifests with an ID in an entry of a file that was removed earlier. `revealing` contains the IDs of
    the snapshots that refer to such manifests.
    """

    table: Table
    schema: pa.Schema
    candidates: Mapping[str, LiveFile]
    of_snapshot: Mapping[int, frozenset[str]]
    heads: Mapping[str, Mapping[str, LiveFile]]
    live: Mapping[str, tuple[LiveFile, ...]]
    """All live files on the head of each branch."""
    revealing: frozenset[int]
    revealing_manifests: frozenset[str]
    files: int
    """The number of different data files in all snapshots."""

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata when the erasure was planned."""
        return self.table.metadata

    def snapshots_with_rows(self, matches: MatchesByFile) -> dict[int, Snapshot]:
        """Return the snapshots that refer to a file with matching rows, or to one of the IDs, by snapshot ID.

        A snapshot refers to an ID if its manifests contain the ID in an entry of a removed file.
        """
        return {
            snapshot.snapshot_id: snapshot
            for snapshot in self.metadata.snapshots
            if snapshot.snapshot_id in self.revealing or not self.of_snapshot[snapshot.snapshot_id].isdisjoint(matches)
        }

    def branches(self, matches: MatchesByFile) -> list[str]:
        """Return the branches whose heads are among `snapshots_with_rows`."""
        snapshots_with_rows = self.snapshots_with_rows(matches)
        return sorted(
            name
            for name, ref in self.metadata.refs.items()
            if ref.snapshot_ref_type == SnapshotRefType.BRANCH and ref.snapshot_id in snapshots_with_rows
        )

    def tags(self, matches: MatchesByFile, kept_since: datetime | None = None) -> list[str]:
        """Return the tags on snapshots among `snapshots_with_rows`, except fence tags and tags on kept snapshots."""
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
    """Return whether a snapshot was made at or after `since`, and is therefore kept. None keeps no snapshot."""
    return since is not None and snapshot.timestamp_ms >= since.timestamp() * 1000


class Planner:
    """Plans an erasure, again after each change of the table.

    Entries read from manifests are cached, because manifests are immutable.
    """

    def __init__(self, column: IdColumn) -> None:
        self._column = column
        self._reader = BranchFiles([column.field.field_id])
        self._may_have: dict[str, bool] = {}
        self._reveals: dict[str, bool] = {}

    def plan(self, table: Table, id_filter: IdFilter) -> TablePlan:
        """Return the plan for the table's present state.

        Raises Unsuitable, TableConflict, and errors of reading metadata.
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
        for snapshot in metadata.snapshots:
            live = self._reader.at(snapshot, table.io)
            manifests = snapshot.manifests(table.io)
            deletes = self._reader.deletes_in(manifests, table.io)
            equality = [file for file in deletes if file.entry.content == DataFileContent.EQUALITY_DELETES]
            if equality and snapshot.snapshot_id in heads.values():
                raise Unsuitable(
                    "another engine added equality deletes, which may contain the IDs. Compact the table (Athena: "
                    "OPTIMIZE; Spark: rewrite_data_files with delete-file-threshold 1), and run the command again"
                )
            with_rows = {file.path: file for file in (*live, *equality) if self._may_have_rows(file, id_filter)}
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
        if file.path not in self._may_have:
            self._may_have[file.path] = id_filter.rows(file.entry)
        return self._may_have[file.path]

    def _reveals_id(self, manifest: ManifestFile, id_filter: IdFilter, io: FileIO) -> bool:
        """Return whether a manifest's entries of removed files contain one of the IDs: as a bound or a partition value.

        Manifests without such entries are not read.
        """
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


# --- the column in which ids are searched, and what metadata reveals about ids ----------------------------------------


class NoSuchColumn(ConfigError):
    """The table has no column with the requested name."""


@dataclass(frozen=True, slots=True)
class IdColumn:
    """The column in which IDs are searched: a top-level column, or a field inside structs.

    `path` contains the names from the top-level column down to `field`, the field itself.
    """

    path: tuple[str, ...]
    field: NestedField
    arrow: pa.Field[Any]
    """The top-level column as an Arrow field with field IDs. Its structs contain only the fields on the path."""

    @classmethod
    def named(cls, column: str, table: TableName, schema: Schema) -> Self:
        """Return the column with this name or dotted path.

        Raises NoSuchColumn if it does not exist, and ConfigError if it is not of a primitive type that this connector
        writes.
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
        """The Arrow type of the field itself, and thus of the IDs."""
        type_: pa.DataType = self.arrow.type
        while isinstance(type_, pa.StructType):
            type_ = type_.field(0).type
        return type_


def _path_to(
    path: str, fields: Iterable[NestedField], above: tuple[NestedField, ...]
) -> tuple[NestedField, ...] | None:
    """Return the fields on a dotted path, or None if there is no such path. Names may contain dots too."""
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
    """Return the lower-case names of the partition fields, of any spec, that derive from the ID column."""
    fields = (field for spec in metadata.specs().values() for field in spec.fields)
    return {field.name.lower() for field in fields if field.source_id == column.field.field_id}


class IdFilter:
    """Decides from manifest entries which files may contain rows with one of the IDs.

    Also decides which manifest entries reveal an ID.
    """

    def __init__(self, column: IdColumn, ids: Ids, few: Sequence[Any] | None, metadata: TableMetadata) -> None:
        """Prepare the filter. `few` contains the IDs as values.

        If there are too many IDs, `few` is None, and no file is skipped because of its partition.
        """
        self._column = column
        self._ids = ids
        self._metadata = metadata
        self._keys = KeyColumns.for_fields((column.field.field_id,), metadata.schema())
        self._ranges = [IndexPart(1, (bounds,)) for bounds in ids.ranges]
        self._values = None if few is None else [as_stored(value) for value in few]
        self._partitions: dict[int, list[tuple[int, frozenset[Any]]]] = {}

    def rows(self, file: IcebergFile) -> bool:
        """Return whether a file may contain rows with one of the IDs, by its bounds and its partition."""
        if not any(self._keys.may_have(file, bounds) for bounds in self._ranges):
            return False
        return all(file.partition[position] in values for position, values in self._partitions_of(file.spec_id))

    def reveals_id(self, files: Iterable[IcebergFile]) -> bool:
        """Return whether a manifest entry contains one of the IDs as a bound or a partition value.

        The rows of the files do not matter.
        """
        values = [value for file in files for value in self._revealed_values(file)]
        return bool(values) and bool(self._ids.contains(_array(values, self._ids.type)).any())

    def _revealed_values(self, file: IcebergFile) -> Iterator[Any]:
        id_, type_ = self._column.field.field_id, self._column.field.field_type
        assert isinstance(type_, PrimitiveType)
        for bounds in (file.lower_bounds, file.upper_bounds):
            if (bound := (bounds or {}).get(id_)) is not None:
                try:
                    yield from_bytes(type_, bound)
                except (ValueError, ArithmeticError, UnicodeDecodeError):
                    continue
        for position, field in enumerate(self._metadata.specs()[file.spec_id].fields):
            if field.source_id == id_ and isinstance(field.transform, IdentityTransform | TruncateTransform):
                value = file.partition[position]
                if value is not None:
                    yield value

    def _partitions_of(self, spec_id: int) -> list[tuple[int, frozenset[Any]]]:
        """Return the partition fields of a spec that derive from the ID column.

        Each field is returned as its position in the spec, with the partition values of all IDs.
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
            except Exception:  # PyIceberg does not support the transform for this type, so the field skips no file.
                continue


def manifest_reveals_id(
    s3: S3Client,
    uri: str,
    types: Sequence[IcebergType],
    ids: Ids,
    field_id: int | None = None,
    version: str | None = None,
) -> bool | None:
    """Return whether an unreferenced manifest or manifest list contains an id as a bound or as a partition value.

    Bounds are decoded as each of the `types`. With `field_id`, only the bounds of that column are compared. Otherwise
    the bounds of all columns are compared. Return False for an object that no longer exists, and None for one that
    cannot be read, because it is damaged, too large when decompressed, or neither a manifest nor a manifest list.
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
            with suppress(ValueError, ArithmeticError, struct.error):
                values.append(from_bytes(type_, bound))
    return any(_is_id(value, ids) for value in values if value is not None)


def _is_id(value: Any, ids: Ids) -> bool:
    try:
        return bool(ids.contains(_array([value], ids.type)).any())
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False  # The value is of another type, so it belongs to a partition by another column.


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array[Any]:
    """Return values from manifests as an Arrow array that can be compared with IDs of this type."""
    stored = [as_stored(value) for value in values]
    if pa.types.is_temporal(type_) or pa.types.is_integer(type_):
        return pa.array(stored, pa.int64())
    return pa.array(stored, type_)
