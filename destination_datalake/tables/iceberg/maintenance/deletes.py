"""Delete files, and the data files that they may apply to (Iceberg spec: Scan Planning)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestEntry

from destination_datalake.tables.iceberg.snapshots.entries import DELETED_PATH

PartitionKey = tuple[int, str]
"""A partition spec's id, and the values as `repr` writes them: as values 0.0 and -0.0 are equal, and NaN is not."""


def partition_key(file: IcebergFile) -> PartitionKey:
    """Return the partition of a data file or delete file."""
    return file.spec_id, repr(file.partition)


@dataclass(slots=True)
class _Group:
    """The delete files of a partition: by the path that they are for, if they have rows of one file only."""

    highest: int = -1
    """The highest data sequence number of those that may be for any file."""
    by_path: dict[bytes, int] = field(default_factory=dict)
    ranges: list[tuple[bytes, bytes, int]] = field(default_factory=list)

    def add(self, deletes: ManifestEntry) -> None:
        sequence = deletes.sequence_number or 0
        file = deletes.data_file
        lower, upper = ((bounds or {}).get(DELETED_PATH) for bounds in (file.lower_bounds, file.upper_bounds))
        if file.content != DataFileContent.POSITION_DELETES or lower is None or upper is None:
            self.highest = max(self.highest, sequence)
        elif lower == upper:
            self.by_path[lower] = max(self.by_path.get(lower, -1), sequence)
        else:
            self.ranges.append((lower, upper, sequence))

    def may_apply(self, path: str, sequence: int) -> bool:
        encoded = path.encode()
        # Of other characters, writers may have compared code units of UTF-16.
        is_between = (
            not path.isascii() or lower <= encoded <= upper for lower, upper, of in self.ranges if of >= sequence
        )
        return self.highest >= sequence or self.by_path.get(encoded, -1) >= sequence or any(is_between)


class Deletes:
    """The delete files of a snapshot."""

    def __init__(self, entries: Iterable[ManifestEntry]) -> None:
        self._everywhere = _Group()
        self._by_partition: dict[PartitionKey, _Group] = {}
        for entry in entries:
            self._group_of(entry.data_file).add(entry)

    def may_apply(self, file: IcebergFile, sequence: int | None) -> bool:
        """Whether one of them may delete rows of a data file. Bounds of values are not looked at."""
        return any(group.may_apply(file.file_path, sequence or 0) for group in self._groups(file))

    def _group_of(self, deletes: IcebergFile) -> _Group:
        # Equality deletes of a spec without fields, or with void ones only, apply to all partitions.
        if all(deletes.partition[position] is None for position in range(len(deletes.partition))):
            return self._everywhere
        return self._by_partition.setdefault(partition_key(deletes), _Group())

    def _groups(self, file: IcebergFile) -> Iterator[_Group]:
        yield self._everywhere
        if self._by_partition and (group := self._by_partition.get(partition_key(file))) is not None:
            yield group
