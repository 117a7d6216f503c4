"""The files of a snapshot that may be compacted, and those that may not because rows of theirs may be deleted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry
from pyiceberg.table import Table

from destination_datalake.tables.iceberg.snapshots.manifests import live_entries, live_manifests

PartitionKey = tuple[int, str]
"""A partition spec's id, and the values as `repr` writes them: as values 0.0 and -0.0 are equal, and NaN is not."""

_DELETED_PATH = 2147483546
"""The field id of `file_path` in files of position deletes (Iceberg spec: Reserved Field IDs)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live data file. `sequence` is its data sequence number, None in tables of format version 1."""

    file: IcebergFile
    """Without its metrics, which are most of an entry's memory."""
    sequence: int | None

    @property
    def partition(self) -> PartitionKey:
        """The partition it is in."""
        return partition_key(self.file)


def partition_key(file: IcebergFile) -> PartitionKey:
    """Return the partition of a data file or delete file."""
    return file.spec_id, repr(file.partition)


@dataclass(frozen=True, slots=True)
class Candidates:
    """`files` can be compacted; so many others cannot."""

    files: tuple[Candidate, ...]
    with_deletes: int
    """Delete files may apply to them."""
    of_other_formats: int
    repeated: int
    """They are listed more than once, and so are their rows. A removal, which is by path, would remove all of them."""


def candidates(table: Table, branch: str) -> Candidates:
    """Return the live files of a branch in the order of their sequence numbers, those of one commit as it lists them.

    Reads all manifests.
    """
    ref = table.metadata.refs.get(branch)
    manifests = live_manifests(table, ref.snapshot_id) if ref is not None else []
    of_deletes = [each for each in manifests if each.content == ManifestContent.DELETES]
    deletes = Deletes([entry for manifest in of_deletes for entry in live_entries(manifest, table.io)])
    found: list[Candidate] = []
    with_deletes = of_other_formats = 0
    times: Counter[str] = Counter()
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA:
            for entry in live_entries(manifest, table.io):
                times[entry.data_file.file_path] += 1
                if entry.data_file.file_format != FileFormat.PARQUET:
                    of_other_formats += 1
                elif deletes.may_apply(entry):
                    with_deletes += 1
                else:
                    found.append(Candidate(_without_metrics(entry.data_file), entry.sequence_number))
    once = sorted((each for each in found if times[each.file.file_path] == 1), key=lambda each: each.sequence or 0)
    return Candidates(tuple(once), with_deletes, of_other_formats, len(found) - len(once))


def _without_metrics(file: IcebergFile) -> IcebergFile:
    lean = IcebergFile.from_args(
        content=file.content,
        file_path=file.file_path,
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
    )
    lean.spec_id = file.spec_id
    return lean


class Deletes:
    """The delete files of a snapshot, by the partitions that they apply to (Iceberg spec: Scan Planning)."""

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        self._everywhere: list[ManifestEntry] = []
        self._by_partition: dict[PartitionKey, list[ManifestEntry]] = defaultdict(list)
        for entry in entries:
            # Equality deletes of an unpartitioned spec apply to all partitions, position deletes to files by path.
            if not len(entry.data_file.partition):
                self._everywhere.append(entry)
            else:
                self._by_partition[partition_key(entry.data_file)].append(entry)

    def may_apply(self, data: ManifestEntry) -> bool:
        """Whether some delete file may delete rows of a data file. Bounds of values are not looked at."""
        return any(
            (deletes.sequence_number or 0) >= (data.sequence_number or 0)
            and _may_have(deletes.data_file, data.data_file.file_path)
            for deletes in self._of(data.data_file)
        )

    def _of(self, file: IcebergFile) -> Iterator[ManifestEntry]:
        yield from self._everywhere
        if self._by_partition:
            yield from self._by_partition.get(partition_key(file), ())


def _may_have(deletes: IcebergFile, path: str) -> bool:
    """Whether a delete file may delete rows of the data file at `path`: position deletes have bounds of paths."""
    if deletes.content != DataFileContent.POSITION_DELETES:
        return True
    lower = (deletes.lower_bounds or {}).get(_DELETED_PATH)
    upper = (deletes.upper_bounds or {}).get(_DELETED_PATH)
    encoded = path.encode()
    if not path.isascii():
        return True  # Writers may have compared code units of UTF-16.
    return (lower is None or lower <= encoded) and (upper is None or encoded <= upper)
