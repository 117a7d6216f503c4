"""The files of a snapshot that may be compacted, and those that may not because of equality deletes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from destination_datalake.tables.iceberg.snapshots.deletes import (
    Deletes,
    DeletesInUse,
    PartitionKey,
    is_for_one,
    partition_key,
)
from destination_datalake.tables.iceberg.snapshots.manifests import lean_entry, live_entries, live_manifests

_MOST_DEAD = 0.2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live data file. `sequence` is its data sequence number, None in tables of format version 1."""

    file: IcebergFile
    """Without its metrics, which are most of an entry's memory."""
    sequence: int | None
    manifest: str
    """The manifest that lists it."""
    deletes: tuple[IcebergFile, ...] = ()
    """The files of position deletes that may have rows of it."""

    @property
    def is_worn(self) -> bool:
        """Whether so many of its rows are deleted that it should be written again, however large it is.

        Only delete files that are for it alone are counted: of others the share of this file is unknown.
        """
        dead = sum(each.record_count for each in self.deletes if is_for_one(each, self.file.file_path))
        return dead > _MOST_DEAD * self.file.record_count

    def has_same_deletes(self, other: Candidate) -> bool:
        """Whether the same delete files may apply to both."""
        return {each.file_path for each in self.deletes} == {each.file_path for each in other.deletes}

    @property
    def partition(self) -> PartitionKey:
        """The partition it is in."""
        return partition_key(self.file)


@dataclass(frozen=True, slots=True)
class Candidates:
    """`files` can be compacted; so many others cannot."""

    files: tuple[Candidate, ...]
    with_equality_deletes: int
    """Equality deletes may apply to them."""
    of_other_formats: int
    repeated: int
    """They are listed more than once, and so are their rows. A removal, which is by path, would remove all of them."""
    deletes: DeletesInUse
    """The delete files, by the files of the snapshot that they may apply to, candidates or not."""


class Manifests:
    """Reads manifests, several at a time, and each once, for they are immutable. Keeps those of the last snapshot."""

    def __init__(self) -> None:
        self._data: dict[str, Sequence[Candidate]] = {}
        self._deletes: dict[str, Sequence[ManifestEntry]] = {}

    def candidates(self, table: Table, branch: str) -> Candidates:
        """Return the live files of a branch in the order of their sequence numbers.

        Those of one commit are in the order in which it lists them.
        """
        ref = table.metadata.refs.get(branch)
        self._read(live_manifests(table, ref.snapshot_id) if ref is not None else [], table.io)
        deletes = Deletes(entry for entries in self._deletes.values() for entry in entries)
        times = Counter(each.file.file_path for files in self._data.values() for each in files)
        in_use = DeletesInUse()
        found: list[Candidate] = []
        with_equality_deletes = of_other_formats = repeated = 0
        for each in (each for files in self._data.values() for each in files):
            applying = deletes.applying(each.file, each.sequence)
            in_use.add(applying)
            if each.file.file_format != FileFormat.PARQUET:
                of_other_formats += 1
            elif any(delete.content == DataFileContent.EQUALITY_DELETES for delete in applying):
                with_equality_deletes += 1
            elif times[each.file.file_path] > 1:
                repeated += 1
            else:
                found.append(replace(each, deletes=applying) if applying else each)
        found.sort(key=lambda each: each.sequence or 0)
        return Candidates(tuple(found), with_equality_deletes, of_other_formats, repeated, in_use)

    def _read(self, manifests: Sequence[ManifestFile], io: FileIO) -> None:
        """Read what has not been read; forget manifests that are not among these."""
        data = [each for each in manifests if each.content == ManifestContent.DATA]
        deletes = [each for each in manifests if each.content == ManifestContent.DELETES]
        run = ExecutorFactory.get_or_create().map
        missing = [each for each in data if each.manifest_path not in self._data]
        found = dict(
            zip((each.manifest_path for each in missing), run(lambda each: _data_files(each, io), missing), strict=True)
        )
        self._data = {
            each.manifest_path: found.get(each.manifest_path) or self._data.get(each.manifest_path, ()) for each in data
        }
        read = run(lambda each: live_entries(each, io), deletes)
        self._deletes = dict(zip((each.manifest_path for each in deletes), read, strict=True))


def _data_files(manifest: ManifestFile, io: FileIO) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(lean_entry(entry.data_file), entry.sequence_number, manifest.manifest_path)
        for entry in live_entries(manifest, io)
    )
