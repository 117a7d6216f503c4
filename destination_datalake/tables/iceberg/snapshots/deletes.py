"""Delete files, and the data files that they may apply to (Iceberg spec: Scan Planning)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry
from pyiceberg.table import Table

from destination_datalake.files.plan import SourceFile
from destination_datalake.tables.iceberg.pyiceberg_internals import referenced_data_file
from destination_datalake.tables.iceberg.snapshots.entries import DELETED_PATH
from destination_datalake.tables.iceberg.snapshots.manifests import live_entries, live_manifests

PartitionKey = tuple[int, str]
"""A partition spec's id, and the values as `repr` writes them: as values 0.0 and -0.0 are equal, and NaN is not."""


def partition_key(file: IcebergFile) -> PartitionKey:
    """Return the partition of a data file or delete file."""
    return file.spec_id, repr(file.partition)


def path_bounds(deletes: IcebergFile) -> tuple[bytes | None, bytes | None]:
    """Return the lowest and the highest path whose rows a file of position deletes has; None if that is unknown."""
    if deletes.content != DataFileContent.POSITION_DELETES:
        return None, None
    if (path := referenced_data_file(deletes)) is not None:
        return path.encode(), path.encode()
    lower, upper = ((bounds or {}).get(DELETED_PATH) for bounds in (deletes.lower_bounds, deletes.upper_bounds))
    return lower, upper


def is_for_one(deletes: IcebergFile, path: str) -> bool:
    """Whether a delete file has rows of no other data file than that of the path."""
    return path_bounds(deletes) == (path.encode(), path.encode())


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

    def may_apply(self, path: str, sequence: int) -> bool:
        return self.highest >= sequence or any(True for _ in self._named(path, sequence))

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


class DeletesInUse:
    """How many data files each delete file may apply to."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()

    def add(self, applying: Iterable[IcebergFile]) -> None:
        """Add the delete files of a data file."""
        self._uses.update(each.file_path for each in applying)

    def without(self, removed: Iterable[Iterable[IcebergFile]]) -> list[IcebergFile]:
        """Return the delete files that apply to nothing when some data files are removed, of which these are those."""
        of_removed = [each for applying in removed for each in applying]
        uses = Counter(each.file_path for each in of_removed)
        by_path = {each.file_path: each for each in of_removed}
        return [each for path, each in by_path.items() if uses[path] == self._uses[path]]


class Deletes:
    """The delete files of a snapshot."""

    def __init__(self, entries: Iterable[ManifestEntry]) -> None:
        self._everywhere = _Group()
        self._by_partition: dict[PartitionKey, _Group] = {}
        self.with_equality = False
        """Whether some of them are equality deletes."""
        for entry in entries:
            self.with_equality |= entry.data_file.content == DataFileContent.EQUALITY_DELETES
            self._group_of(entry.data_file).add(entry)

    def may_apply(self, file: IcebergFile, sequence: int | None) -> bool:
        """Whether one of them may delete rows of a data file. Bounds of values are not looked at."""
        return any(group.may_apply(file.file_path, sequence or 0) for group in self._groups(file))

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


def live_files_with_deletes(
    table: Table, snapshot_id: int
) -> tuple[list[tuple[IcebergFile, tuple[IcebergFile, ...]]], DeletesInUse]:
    """Return the live data files of a snapshot, each with the delete files that may apply to it."""
    entries = [
        (manifest.content, entry)
        for manifest in live_manifests(table, snapshot_id)
        for entry in live_entries(manifest, table.io)
    ]
    deletes = Deletes(entry for content, entry in entries if content == ManifestContent.DELETES)
    found, in_use = [], DeletesInUse()
    for content, entry in entries:
        if content == ManifestContent.DATA:
            applying = deletes.applying(entry.data_file, entry.sequence_number)
            found.append((entry.data_file, applying))
            in_use.add(applying)
    return found, in_use


def as_sources(deletes: Iterable[IcebergFile]) -> tuple[SourceFile, ...]:
    """Return delete files as jobs read them."""
    return tuple(SourceFile(each.file_path, each.file_size_in_bytes, each.record_count) for each in deletes)
