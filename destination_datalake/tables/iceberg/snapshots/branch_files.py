"""The live files of a branch, each with the delete files that may apply to it, as manifests list them.

Manifests are immutable: what was read of one is kept while work is planned again and again.
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
"""A partition spec's id, and the values as `repr` writes them: as values 0.0 and -0.0 are equal, and NaN is not."""

_REMEDY = (
    "If other engines can read the table, let them write its manifests again (Spark: the procedure rewrite_manifests)."
)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live data file, and the delete files that may apply to it.

    `entry` has the metrics that its reader keeps. `sequence` is its data sequence number, None in tables of format
    version 1; `manifest` lists it.
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
        """What a result for this file depends on: its path, and those of its deletes."""
        return (self.path, *sorted(each.file_path for each in self.deletes))

    @property
    def partition(self) -> PartitionKey:
        """The partition it is in."""
        return partition_key(self.entry)

    @property
    def has_equality_deletes(self) -> bool:
        """Whether equality deletes may apply to it."""
        return any(each.content == DataFileContent.EQUALITY_DELETES for each in self.deletes)

    def source(self, metadata: TableMetadata) -> SourceFile:
        """Return the file as jobs read it."""
        file, identities = self.entry, identity_sources(self.entry, metadata)
        return SourceFile(
            file.file_path, file.file_size_in_bytes, file.record_count, identities, as_sources(self.deletes)
        )


class BranchFiles:
    """Reads the live files of branches, several manifests at a time, and each once."""

    def __init__(self, metrics: Collection[int] | None = ()) -> None:
        """`metrics` are the field ids whose metrics are kept, most of an entry's memory; None keeps all."""
        self._metrics = frozenset(metrics) if metrics is not None else None
        self._data: dict[str, Sequence[LiveFile]] = {}
        self._deletes: dict[str, Sequence[ManifestEntry]] = {}
        self._last: frozenset[str] = frozenset()

    def of(self, table: Table, branch: str) -> list[LiveFile]:
        """Return the live data files of a branch, none if there is no such branch. Raises TableConflict."""
        return self.at(table.metadata.snapshot_by_name(branch), table.io)

    def at(self, snapshot: Snapshot | None, io: FileIO) -> list[LiveFile]:
        """Return the live data files of a snapshot, none without one. Raises TableConflict."""
        manifests = live_manifests(snapshot, io)
        self._last = frozenset(each.manifest_path for each in manifests)
        data = self._read(ManifestContent.DATA, manifests, self._data, self._data_files, io)
        deletes = self._read(ManifestContent.DELETES, manifests, self._deletes, live_entries, io)
        if not deletes:
            return data
        found = DeleteIndex(deletes)
        return [replace(each, deletes=found.applying(each.entry, each.sequence)) for each in data]

    def forget_others(self) -> None:
        """Forget the manifests that the snapshot does not have that was read last."""
        for known in (self._data, self._deletes):
            for path in known.keys() - self._last:
                del known[path]

    def manifests_of_deletes(self, table: Table, branch: str) -> frozenset[str]:
        """Return the manifests of a branch's delete files."""
        snapshot = table.metadata.snapshot_by_name(branch) if self._deletes else None
        manifests = live_manifests(snapshot, table.io)
        return frozenset(each.manifest_path for each in manifests if each.content == ManifestContent.DELETES)

    def _read(
        self,
        content: ManifestContent,
        manifests: Sequence[ManifestFile],
        known: dict[str, Sequence[_Value]],
        read: Callable[[ManifestFile, FileIO], Sequence[_Value]],
        io: FileIO,
    ) -> list[_Value]:
        wanted = [each for each in manifests if each.content == content]
        missing = [each for each in wanted if each.manifest_path not in known]
        results = ExecutorFactory.get_or_create().map(lambda each: read(each, io), missing)
        known |= dict(zip((each.manifest_path for each in missing), results, strict=True))
        return [file for each in wanted for file in known[each.manifest_path]]

    def _data_files(self, manifest: ManifestFile, io: FileIO) -> tuple[LiveFile, ...]:
        return tuple(
            LiveFile(self._lean(entry.data_file), entry.sequence_number, manifest.manifest_path)
            for entry in live_entries(manifest, io)
        )

    def _lean(self, file: IcebergFile) -> IcebergFile:
        return lean_entry(file, self._metrics) if self._metrics is not None else file


class Incomplete(Exception):
    """A manifest list or a manifest cannot be read to its end, or has fewer live files than its list says."""


def manifests_of(manifest_list: str, io: FileIO) -> list[ManifestFile]:
    """Return the manifests in a manifest list. Raises Incomplete, FileNotFoundError, and botocore's exceptions."""
    with _to_the_end(manifest_list):
        return [*read_manifest_list(io.new_input(manifest_list))]


def complete_entries(manifest: ManifestFile, io: FileIO) -> Iterator[ManifestEntry]:
    """Yield the entries of a manifest without those of deleted files. Raises as `manifests_of`."""
    found = 0
    with _to_the_end(manifest.manifest_path):
        for entry in manifest_entries(manifest, io):
            found += 1
            yield entry
    counts = (manifest.added_files_count, manifest.existing_files_count)  # None in old tables.
    if found < (listed := sum(count or 0 for count in counts)):
        raise Incomplete(f"{manifest.manifest_path} cannot be read: {found} of {listed} live files are found in it")


@contextmanager
def _to_the_end(path: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, ResolveError, SystemError, ValueError, zlib.error) as error:
        raise Incomplete(f"{path} cannot be read: {error}") from error


def live_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return what `complete_entries` yields. Raises TableConflict where it raises Incomplete.

    A manifest that is written in place of an incomplete one would lack the other files.
    """
    with _as_conflict():
        return [*complete_entries(manifest, io)]


@contextmanager
def _as_conflict() -> Iterator[None]:
    try:
        yield
    except Incomplete as error:
        raise TableConflict(f"{error}. {_REMEDY}") from error


def lean_entry(file: IcebergFile, columns: Collection[int] = ()) -> IcebergFile:
    """Return a data file's entry without its metrics, which are most of its memory, but for those of some field ids."""

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
    """Return the manifests of a snapshot that have live files, data files or delete files. Reads its list only.

    Raises TableConflict.
    """
    with _as_conflict():
        manifests = manifests_of(snapshot.manifest_list, io) if snapshot is not None else []
    return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]


def has_row_level_deletes(snapshot: Snapshot | None, io: FileIO) -> bool:
    """Whether a snapshot has delete files, which apply to data files by path or sequence number (Iceberg spec)."""
    return any(manifest.content == ManifestContent.DELETES for manifest in live_manifests(snapshot, io))


# --- delete files, and the data files that they may apply to (Iceberg spec: Scan Planning) ----------------------------


def partition_key(file: IcebergFile) -> PartitionKey:
    """Return the partition of a data file or delete file."""
    return file.spec_id, repr(file.partition)


def path_bounds(deletes: IcebergFile) -> tuple[bytes | None, bytes | None]:
    """Return the lowest and the highest path whose rows a file of position deletes has; None if that is unknown."""
    if deletes.content != DataFileContent.POSITION_DELETES:
        return None, None
    if (path := referenced_data_file(deletes)) is not None:
        return path.encode(), path.encode()
    lower, upper = ((bounds or {}).get(PATH_ID) for bounds in (deletes.lower_bounds, deletes.upper_bounds))
    return lower, upper


def is_for_one(deletes: IcebergFile, path: str) -> bool:
    """Whether a delete file has rows of no other data file than that of the path."""
    return path_bounds(deletes) == (path.encode(), path.encode())


def as_sources(deletes: Iterable[IcebergFile]) -> tuple[SourceFile, ...]:
    """Return delete files as jobs read them."""
    return tuple(SourceFile(each.file_path, each.file_size_in_bytes, each.record_count) for each in deletes)


def unneeded_deletes(removed: Iterable[LiveFile], files: Iterable[LiveFile]) -> list[IcebergFile]:
    """Return the delete files that apply to nothing any more when some of the live files are removed."""
    by_path: dict[str, IcebergFile] = {}
    uses = Counter(each.file_path for file in files for each in file.deletes)
    for file in removed:
        for each in file.deletes:
            by_path[each.file_path] = each
            uses[each.file_path] -= 1
    return [each for path, each in by_path.items() if not uses[path]]


@dataclass(slots=True)
class _Group:
    """The delete files of a partition: by the path that they are for, if they have rows of one file only."""

    for_any: list[ManifestEntry] = field(default_factory=list)
    highest: int = -1
    """The highest data sequence number of those that may be for any file."""
    by_path: dict[bytes, list[ManifestEntry]] = field(default_factory=dict)
    ranges: list[tuple[bytes, bytes, ManifestEntry]] = field(default_factory=list)

    def add(self, deletes: ManifestEntry) -> None:
        lower, upper = path_bounds(deletes.data_file)
        if lower is None or upper is None:
            self.highest = max(self.highest, deletes.sequence_number or 0)
            self.for_any.append(deletes)
        elif lower == upper:
            self.by_path.setdefault(lower, []).append(deletes)
        else:
            self.ranges.append((lower, upper, deletes))

    def applying(self, path: str, sequence: int) -> Iterator[ManifestEntry]:
        if self.highest >= sequence:
            for each in self.for_any:
                # Equality deletes are for rows of earlier commits, and not for those of their own.
                is_of_positions = each.data_file.content == DataFileContent.POSITION_DELETES
                if (each.sequence_number or 0) + is_of_positions > sequence:
                    yield each
        yield from self._named(path, sequence)

    def _named(self, path: str, sequence: int) -> Iterator[ManifestEntry]:
        """Yield those that have the path between their bounds."""
        encoded, is_ascii = path.encode(), path.isascii()
        yield from (each for each in self.by_path.get(encoded, ()) if (each.sequence_number or 0) >= sequence)
        for lower, upper, each in self.ranges:
            # Of other characters, writers may have compared code units of UTF-16.
            if (each.sequence_number or 0) >= sequence and (not is_ascii or lower <= encoded <= upper):
                yield each


class DeleteIndex:
    """The delete files of a snapshot."""

    def __init__(self, entries: Iterable[ManifestEntry]) -> None:
        self._everywhere = _Group()
        self._by_partition: dict[PartitionKey, _Group] = {}
        for entry in entries:
            self._group_of(entry.data_file).add(entry)

    def applying(self, file: IcebergFile, sequence: int | None) -> tuple[IcebergFile, ...]:
        """Return those that may delete rows of a data file."""
        found = (each for group in self._groups(file) for each in group.applying(file.file_path, sequence or 0))
        return tuple(each.data_file for each in found)

    def _group_of(self, deletes: IcebergFile) -> _Group:
        # Equality deletes of a spec without fields, or with void ones only, apply to all partitions.
        if all(deletes.partition[position] is None for position in range(len(deletes.partition))):
            return self._everywhere
        return self._by_partition.setdefault(partition_key(deletes), _Group())

    def _groups(self, file: IcebergFile) -> Iterator[_Group]:
        yield self._everywhere
        if self._by_partition and (group := self._by_partition.get(partition_key(file))) is not None:
            yield group
