"""The live files of a branch, each with the delete files that may apply to it, from manifests.

Manifests are immutable: their entries are cached while work is planned repeatedly.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.concurrent import ExecutorFactory

from destination_datalake.files.parquet import PATH_ID
from destination_datalake.files.plan import SourceFile
from destination_datalake.tables.iceberg.pyiceberg_internals import manifest_entries, referenced_data_file
from destination_datalake.tables.iceberg.snapshots.entries import identity_sources
from destination_datalake.tables.table import TableConflict

_Value = TypeVar("_Value")

PartitionKey = tuple[int, str]
"""A partition spec's id, and the `repr` of the values. As values, 0.0 equals -0.0, and NaN does not equal itself."""

_REMEDY = (
    "If other engines can read the table, let them write its manifests again (Spark: the procedure rewrite_manifests)."
)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live data file, and the delete files that may apply to it.

    `entry` has only the metrics that its reader keeps. `sequence` is the data sequence number, None in tables of format
    version 1. `manifest` is the path of the manifest with the entry.
    """

    entry: IcebergFile
    sequence: int | None
    manifest: str
    deletes: tuple[IcebergFile, ...] = ()

    @property
    def path(self) -> str:
        """The file's URI."""
        return self.entry.file_path

    @property
    def state(self) -> tuple[str, ...]:
        """The key of results for this file: its path, and those of its delete files."""
        return (self.path, *sorted(deletes.file_path for deletes in self.deletes))

    @property
    def partition(self) -> PartitionKey:
        """The partition of the file."""
        return partition_key(self.entry)

    @property
    def has_equality_deletes(self) -> bool:
        """Whether equality deletes may apply to it."""
        return any(deletes.content == DataFileContent.EQUALITY_DELETES for deletes in self.deletes)

    def source(self, metadata: TableMetadata) -> SourceFile:
        """Return the file for jobs."""
        file, identities = self.entry, identity_sources(self.entry, metadata)
        return SourceFile(
            file.file_path, file.file_size_in_bytes, file.record_count, identities, as_sources(self.deletes)
        )


class BranchFiles:
    """Reads the live files of branches: several manifests at a time, each manifest once."""

    def __init__(self, metrics: Collection[int] | None = ()) -> None:
        """`metrics` are the field ids whose metrics are kept; None keeps all. Metrics are most of an entry's memory."""
        self._metrics = frozenset(metrics) if metrics is not None else None
        self._data: dict[str, Sequence[LiveFile]] = {}
        self._deletes: dict[str, Sequence[ManifestEntry]] = {}
        self._last_read: frozenset[str] = frozenset()

    def of(self, table: Table, branch: str) -> list[LiveFile]:
        """Return the live data files of a branch; empty without the branch. Raises TableConflict."""
        return self.at(table.metadata.snapshot_by_name(branch), table.io)

    def at(self, snapshot: Snapshot | None, io: FileIO) -> list[LiveFile]:
        """Return the live data files of a snapshot; empty without one. Raises TableConflict."""
        manifests = live_manifests(snapshot, io)
        self._last_read = frozenset(manifest.manifest_path for manifest in manifests)
        data = self._read(ManifestContent.DATA, manifests, self._data, self._data_files, io)
        deletes = self._read(ManifestContent.DELETES, manifests, self._deletes, live_entries, io)
        if not deletes:
            return data
        index = DeleteIndex(deletes)
        return [replace(file, deletes=index.applying(file.entry, file.sequence)) for file in data]

    def forget_unused(self) -> None:
        """Forget manifests that are not in the snapshot that was read last."""
        for cache in (self._data, self._deletes):
            for path in cache.keys() - self._last_read:
                del cache[path]

    def manifests_of_deletes(self, table: Table, branch: str) -> frozenset[str]:
        """Return the manifests of a branch's delete files."""
        snapshot = table.metadata.snapshot_by_name(branch) if self._deletes else None
        manifests = live_manifests(snapshot, table.io)
        return frozenset(
            manifest.manifest_path for manifest in manifests if manifest.content == ManifestContent.DELETES
        )

    def _read(
        self,
        content: ManifestContent,
        manifests: Sequence[ManifestFile],
        cache: dict[str, Sequence[_Value]],
        read: Callable[[ManifestFile, FileIO], Sequence[_Value]],
        io: FileIO,
    ) -> list[_Value]:
        wanted = [manifest for manifest in manifests if manifest.content == content]
        missing = [manifest for manifest in wanted if manifest.manifest_path not in cache]
        results = ExecutorFactory.get_or_create().map(lambda manifest: read(manifest, io), missing)
        cache |= dict(zip((manifest.manifest_path for manifest in missing), results, strict=True))
        return [file for manifest in wanted for file in cache[manifest.manifest_path]]

    def _data_files(self, manifest: ManifestFile, io: FileIO) -> tuple[LiveFile, ...]:
        return tuple(
            LiveFile(self._lean(entry.data_file), entry.sequence_number, manifest.manifest_path)
            for entry in live_entries(manifest, io)
        )

    def _lean(self, file: IcebergFile) -> IcebergFile:
        return lean_entry(file, self._metrics) if self._metrics is not None else file


class Incomplete(Exception):
    """A manifest list or a manifest cannot be read to its end, or has fewer live files than its list counts."""


def manifests_of(manifest_list: str, io: FileIO) -> list[ManifestFile]:
    """Return the manifests in a manifest list. Raises Incomplete, FileNotFoundError, and botocore's exceptions."""
    with _raising_incomplete(manifest_list):
        return [*read_manifest_list(io.new_input(manifest_list))]


def complete_entries(manifest: ManifestFile, io: FileIO) -> Iterator[ManifestEntry]:
    """Yield the live entries of a manifest. Raises as `manifests_of`."""
    live = 0
    with _raising_incomplete(manifest.manifest_path):
        for entry in manifest_entries(manifest, io):
            live += 1
            yield entry
    counts = (manifest.added_files_count, manifest.existing_files_count)  # None in old tables.
    if live < (listed := sum(count or 0 for count in counts)):
        raise Incomplete(f"{manifest.manifest_path} cannot be read: it has {live} of {listed} live files")


@contextmanager
def _raising_incomplete(path: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, ResolveError, SystemError, ValueError, zlib.error) as error:
        raise Incomplete(f"{path} cannot be read: {error}") from error


def live_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return the live entries of a manifest. Raises TableConflict if it is incomplete.

    A manifest that replaces an incomplete one would lose files.
    """
    with _raising_conflict():
        return [*complete_entries(manifest, io)]


@contextmanager
def _raising_conflict() -> Iterator[None]:
    try:
        yield
    except Incomplete as error:
        raise TableConflict(f"{error}. {_REMEDY}") from error


def lean_entry(file: IcebergFile, columns: Collection[int] = ()) -> IcebergFile:
    """Return an entry with the metrics of these field ids only. Metrics are most of an entry's memory."""

    def of_columns(values: Mapping[int, _Value] | None) -> dict[int, _Value]:
        return {id_: value for id_, value in (values or {}).items() if id_ in columns}

    lean = IcebergFile.from_args(
        content=file.content,
        file_path=file.file_path,
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        sort_order_id=file.sort_order_id,
        column_sizes=of_columns(file.column_sizes),
        value_counts=of_columns(file.value_counts),
        null_value_counts=of_columns(file.null_value_counts),
        nan_value_counts=of_columns(file.nan_value_counts),
        lower_bounds=of_columns(file.lower_bounds),
        upper_bounds=of_columns(file.upper_bounds),
    )
    lean.spec_id = file.spec_id
    return lean


def live_manifests(snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    """Return the manifests of a snapshot with live data files or delete files. Reads the manifest list only.

    Raises TableConflict.
    """
    with _raising_conflict():
        manifests = manifests_of(snapshot.manifest_list, io) if snapshot is not None else []
    return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]


def has_row_level_deletes(snapshot: Snapshot | None, io: FileIO) -> bool:
    """Whether a snapshot has delete files."""
    return any(manifest.content == ManifestContent.DELETES for manifest in live_manifests(snapshot, io))


# --- delete files, and the data files to which they may apply (Iceberg spec: Scan Planning) ---------------------------


def partition_key(file: IcebergFile) -> PartitionKey:
    """Return the partition of a data file or delete file."""
    return file.spec_id, repr(file.partition)


def path_bounds(deletes: IcebergFile) -> tuple[bytes | None, bytes | None]:
    """Return the lowest and the highest data file path in a file of position deletes; None if unknown."""
    if deletes.content != DataFileContent.POSITION_DELETES:
        return None, None
    if (path := referenced_data_file(deletes)) is not None:
        return path.encode(), path.encode()
    lower, upper = ((bounds or {}).get(PATH_ID) for bounds in (deletes.lower_bounds, deletes.upper_bounds))
    return lower, upper


def applies_only_to(deletes: IcebergFile, path: str) -> bool:
    """Whether a delete file applies to the data file of this path only."""
    return path_bounds(deletes) == (path.encode(), path.encode())


def as_sources(deletes: Iterable[IcebergFile]) -> tuple[SourceFile, ...]:
    """Return delete files for jobs."""
    return tuple(SourceFile(file.file_path, file.file_size_in_bytes, file.record_count) for file in deletes)


def unneeded_deletes(removed: Iterable[LiveFile], files: Iterable[LiveFile]) -> list[IcebergFile]:
    """Return the delete files that apply to no file any more when some of the live files are removed."""
    by_path: dict[str, IcebergFile] = {}
    uses = Counter(deletes.file_path for file in files for deletes in file.deletes)
    for file in removed:
        for deletes in file.deletes:
            by_path[deletes.file_path] = deletes
            uses[deletes.file_path] -= 1
    return [deletes for path, deletes in by_path.items() if not uses[path]]


@dataclass(slots=True)
class _PartitionDeletes:
    """The delete files of a partition, indexed by the paths of the data files to which they apply."""

    for_any_file: list[ManifestEntry] = field(default_factory=list)
    highest: int = -1
    """The highest data sequence number in `for_any_file`."""
    by_path: dict[bytes, list[ManifestEntry]] = field(default_factory=dict)
    ranges: list[tuple[bytes, bytes, ManifestEntry]] = field(default_factory=list)

    def add(self, deletes: ManifestEntry) -> None:
        lower, upper = path_bounds(deletes.data_file)
        if lower is None or upper is None:
            self.highest = max(self.highest, deletes.sequence_number or 0)
            self.for_any_file.append(deletes)
        elif lower == upper:
            self.by_path.setdefault(lower, []).append(deletes)
        else:
            self.ranges.append((lower, upper, deletes))

    def applying(self, path: str, sequence: int) -> Iterator[ManifestEntry]:
        if self.highest >= sequence:
            for entry in self.for_any_file:
                # Equality deletes apply to rows of earlier commits, position deletes also to those of their own.
                is_of_positions = entry.data_file.content == DataFileContent.POSITION_DELETES
                if (entry.sequence_number or 0) + is_of_positions > sequence:
                    yield entry
        yield from self._applying_by_path(path, sequence)

    def _applying_by_path(self, path: str, sequence: int) -> Iterator[ManifestEntry]:
        """Yield the delete files with the path between their bounds."""
        encoded, is_ascii = path.encode(), path.isascii()
        yield from (deletes for deletes in self.by_path.get(encoded, ()) if (deletes.sequence_number or 0) >= sequence)
        for lower, upper, entry in self.ranges:
            # The order of non-ASCII bounds is unknown: writers in Java compare UTF-16 code units.
            if (entry.sequence_number or 0) >= sequence and (not is_ascii or lower <= encoded <= upper):
                yield entry


class DeleteIndex:
    """The delete files of a snapshot, indexed by partition and path."""

    def __init__(self, entries: Iterable[ManifestEntry]) -> None:
        self._everywhere = _PartitionDeletes()
        self._by_partition: dict[PartitionKey, _PartitionDeletes] = {}
        for entry in entries:
            self._group_of(entry.data_file).add(entry)

    def applying(self, file: IcebergFile, sequence: int | None) -> tuple[IcebergFile, ...]:
        """Return the delete files that may apply to a data file."""
        entries = (deletes for group in self._groups(file) for deletes in group.applying(file.file_path, sequence or 0))
        return tuple(deletes.data_file for deletes in entries)

    def _group_of(self, deletes: IcebergFile) -> _PartitionDeletes:
        # Equality deletes of a spec without fields, or with void fields only, apply to all partitions.
        if all(deletes.partition[position] is None for position in range(len(deletes.partition))):
            return self._everywhere
        return self._by_partition.setdefault(partition_key(deletes), _PartitionDeletes())

    def _groups(self, file: IcebergFile) -> Iterator[_PartitionDeletes]:
        yield self._everywhere
        if self._by_partition and (group := self._by_partition.get(partition_key(file))) is not None:
            yield group
