"""Adds a snapshot with any combination of added and removed files to a branch.

PyIceberg has one class per operation. None of these classes can write delete files, or files of several partition
specs. A snapshot with such files needs several manifests, because one manifest lists only files of one partition spec,
and either data files or delete files (Iceberg spec: Manifests).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import PrivateAttr
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import IcebergType, NestedField, StructType, UnknownType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_bool, property_as_int

from destination_datalake.aws.objects import body_errors
from destination_datalake.tables.iceberg.file_io import MANIFESTS, LruCache, background_writes
from destination_datalake.tables.iceberg.pyiceberg_internals import SnapshotProducer, summary_of
from destination_datalake.tables.iceberg.snapshots.files import lean_entry, live_entries, live_manifests

_logger = logging.getLogger(__name__)

_CONCURRENT_READS = 8
"""Maximum number of manifests that are read concurrently. The number limits the use of memory."""

_CHANGED_PARTITIONS = "changed-partition-count"

_UNMERGED: LruCache[bool] = LruCache(10_000)
"""The paths of manifests that cannot be merged, so that later commits do not try again.

Each path counts as size one, so the cache holds 10,000 paths.
"""


@dataclass(frozen=True, slots=True)
class Change:
    """The files that a snapshot adds to a branch, and the live files that the snapshot removes from the branch.

    Both kinds of changes may include data files and delete files, of any partition spec. A snapshot can add delete
    files only to a table of format version 2. Added files get the snapshot's sequence number, so added position deletes
    also apply to data files that the same snapshot adds. `sequences` sets other data sequence numbers for added files,
    by path.

    `manifests` contains the paths of the manifests that list the removed data files. If `manifests` is None, the commit
    searches all manifests. `renewed` contains the paths of manifests that the commit rewrites without the entries of
    files that earlier snapshots removed. With `same_rows`, the snapshot changes no rows, so incremental readers skip
    the snapshot.
    """

    added: Sequence[IcebergFile] = ()
    removed: Sequence[IcebergFile] = ()
    manifests: frozenset[str] | None = None
    sequences: Mapping[str, int | None] = field(default_factory=dict)
    same_rows: bool = False
    renewed: frozenset[str] = frozenset()

    @property
    def operation(self) -> Operation:
        """The operation in the snapshot's summary, by which incremental readers decide what to read.

        The rules are the same as in Iceberg's Java library (RowDelta).
        """
        if self.same_rows:
            return Operation.REPLACE
        added = {file.content for file in self.added}
        if not self.removed and added <= {DataFileContent.DATA}:
            return Operation.APPEND
        return Operation.OVERWRITE if DataFileContent.DATA in added else Operation.DELETE


def change_branch(
    change: Change, branch: str, table: Table, transaction: Transaction, properties: Mapping[str, str] = EMPTY_DICT
) -> None:
    """Add a snapshot with the change to a branch, in a transaction. Add `properties` to the snapshot's summary.

    Raises ValidationException if a file to remove is not live on the branch, and TableConflict if a manifest cannot be
    read completely.
    """
    with _Producer(change, branch, table, transaction, properties):
        pass


class _Producer(SnapshotProducer):
    """Writes the manifests of a snapshot.

    Each new manifest lists files of one partition spec, and either data files or delete files. The snapshot reuses
    former manifests that list no removed files. If there are many small ones, this class merges them.
    """

    def __init__(
        self, change: Change, branch: str, table: Table, transaction: Transaction, properties: Mapping[str, str]
    ) -> None:
        super().__init__(change.operation, branch, table, transaction, properties)
        self._change = change
        self._writes = background_writes(table)

    def manifests(self) -> list[ManifestFile]:
        previous = self.previous()
        live = live_manifests(previous, self.io)
        if previous is not None:
            MANIFESTS.forget(previous.manifest_list)  # The next commit reads this snapshot's manifest list instead.
        removed, rewritten, untouched = self._without_removed(live)
        added = [*self._by_spec(self._added())]
        # Compactions do not merge manifests, because their commits already read many.
        unchanged = untouched if self._change.same_rows else self._merged(untouched)
        return [*added, *removed, *rewritten, *unchanged]

    def summary(self, previous: Mapping[str, str] | None) -> Summary:
        """Return the summary of the snapshot, with the number of partitions that the snapshot changes."""
        change = self._change
        files = (*change.added, *change.removed)
        changed = {(file.spec_id, repr(file.partition)) for file in files if len(file.partition)}
        counts = {_CHANGED_PARTITIONS: str(len(changed))} if changed else {}
        return summary_of(change.operation, change.added, change.removed, counts, previous)

    def spec(self, spec_id: int) -> PartitionSpec:
        """Return a partition spec of the table whose partition type does not depend on the present schema."""
        spec = super().spec(spec_id)
        return _TypedSpec.with_type(spec, _partition_type(spec, self.metadata))

    def _added(self) -> Iterator[ManifestEntry]:
        for file in self._change.added:
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.snapshot_id,
                # With None, the file inherits the manifest's sequence number (Iceberg spec: Sequence Number
                # Inheritance).
                sequence_number=self._change.sequences.get(file.file_path),
                file_sequence_number=None,
                data_file=file,
            )

    def _without_removed(
        self, previous: Sequence[ManifestFile]
    ) -> tuple[list[ManifestFile], list[ManifestFile], list[ManifestFile]]:
        """Return three lists of manifests, for a new snapshot that removes files.

        The first list contains new manifests with the entries of removed files, the second list the manifests that were
        rewritten without these entries, and the third list the manifests of the previous snapshot that stay unchanged.
        Raises ValidationException if a file to remove is in none of the manifests.
        """
        # PyIceberg compares files and manifests by their paths. So these sets also match entries that were read at
        # another time or with fewer metrics.
        removed = {*self._change.removed}
        contents = {_content(file) for file in removed}
        renewed = self._change.renewed
        wanted = {
            manifest: None
            for manifest in previous
            if manifest.manifest_path in renewed or (manifest.content in contents and self._may_list_removed(manifest))
        }
        untouched = [manifest for manifest in previous if manifest not in wanted]
        rewritten: list[ManifestFile] = []
        removed_entries: list[ManifestEntry] = []
        for manifest, entries in self._read([*wanted]):
            in_manifest = [entry for entry in entries if entry.data_file in removed]
            # The manifest lists none of the removed files, so the snapshot reuses it.
            if not in_manifest and manifest.manifest_path not in renewed:
                untouched.append(manifest)
                continue
            removed_entries += [_removed(entry, self.snapshot_id) for entry in in_manifest]
            rewritten += self._by_spec(_existing(entry) for entry in entries if entry.data_file not in removed)
        if missing := removed - {entry.data_file for entry in removed_entries}:
            paths = ", ".join(sorted(file.file_path for file in missing))
            raise ValidationException(f"Missing required files to delete: {paths}")
        return [*self._by_spec(removed_entries)], rewritten, untouched

    def _may_list_removed(self, manifest: ManifestFile) -> bool:
        listed = self._change.manifests
        return manifest.content != ManifestContent.DATA or listed is None or manifest.manifest_path in listed

    def _read(self, manifests: Sequence[ManifestFile]) -> Iterator[tuple[ManifestFile, list[ManifestEntry]]]:
        for first in range(0, len(manifests), _CONCURRENT_READS):
            batch = manifests[first : first + _CONCURRENT_READS]
            read = ExecutorFactory.get_or_create().map(lambda manifest: live_entries(manifest, self.io), batch)
            yield from zip(batch, read, strict=True)

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Merge small manifests into one. Return all manifests, or the unchanged `manifests` if the merge fails."""
        mergeable = [manifest for manifest in manifests if _UNMERGED.get(manifest.manifest_path) is None]
        chosen = manifests_to_merge(mergeable, self.metadata.properties)
        if not chosen:
            return manifests
        own = len(self.written_manifests)
        self._writes.wait()  # Wait outside the `try` block: a failure of earlier writes is not a failure of the merge.
        unreadable: list[ManifestFile] = []

        def read_entries(manifest: ManifestFile) -> list[ManifestEntry]:
            try:
                return live_entries(manifest, self.io)
            except Exception as error:
                if not _may_succeed_later(error):
                    unreadable.append(manifest)
                raise

        try:
            read = ExecutorFactory.get_or_create().map(read_entries, chosen)
            # Wait inside the block too: if the merged manifest cannot be written, the commit still has the old ones.
            merged = [*self._by_spec(_existing(entry) for entries in read for entry in entries)]
            self._writes.wait()
        except Exception as error:
            # This connector may be unable to read manifests of other writers.
            _logger.info(
                "Cannot merge %d manifests (%s: %s). The commit continues without the merge.",
                len(chosen),
                type(error).__name__,
                error,
            )
            # If the entries cannot be written together, it is unknown which of the manifests is the cause.
            for manifest in unreadable or ([] if _may_succeed_later(error) else chosen):
                _UNMERGED.put(manifest.manifest_path, True, 1)
            self._delete_manifests(own)
            return manifests
        for manifest in chosen:
            # No later commit reads the merged manifests, so make space in the cache for others.
            MANIFESTS.forget(manifest.manifest_path)
        replaced = {*chosen}
        return [*merged, *(manifest for manifest in manifests if manifest not in replaced)]

    def _delete_manifests(self, own: int) -> None:
        """Delete the manifests written for this snapshot, except the first `own` manifests. Ignore failures."""
        unneeded = self.written_manifests[own:]
        del self.written_manifests[own:]
        for path in unneeded:
            with suppress(OSError):
                self.io.delete(path)

    def _by_spec(self, entries: Iterable[ManifestEntry]) -> Iterator[ManifestFile]:
        """Write the entries to new manifests, and yield the manifests.

        There is one manifest per partition spec for data files, and one for delete files.
        """
        # `sorted` is stable, so entries keep their order within a manifest.
        for (content, spec_id), of_spec in groupby(sorted(entries, key=_manifest_of), _manifest_of):
            yield self.written(content, spec_id, of_spec)


def _may_succeed_later(error: Exception) -> bool:
    """Return whether a read or write of a manifest may succeed later: a request failed, and access was not denied."""
    if isinstance(error, ClientError):
        return error.response["Error"]["Code"] != "AccessDenied"
    return isinstance(error, (BotoCoreError, *body_errors()))


def _existing(entry: ManifestEntry) -> ManifestEntry:
    return _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)


def _removed(entry: ManifestEntry, snapshot_id: int) -> ManifestEntry:
    """Return the deleted entry of a removed file, without metrics, so that metadata keeps no bounds of its columns."""
    return _with_status(entry, ManifestEntryStatus.DELETED, snapshot_id, lean_entry(entry.data_file))


def _with_status(
    entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None, file: IcebergFile | None = None
) -> ManifestEntry:
    """Return the entry with another status, and with the ID of the snapshot that the entry records for this status."""
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        # Only added entries may inherit sequence numbers. All others must contain them (Iceberg spec: Sequence Number
        # Inheritance).
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=file or entry.data_file,
    )


def _content(file: IcebergFile) -> ManifestContent:
    return ManifestContent.DATA if file.content == DataFileContent.DATA else ManifestContent.DELETES


def _manifest_of(entry: ManifestEntry) -> tuple[ManifestContent, int]:
    return _content(entry.data_file), entry.data_file.spec_id


# --- merging of small manifests ---------------------------------------------------------------------------------------

_MERGE_COUNT = 20
_MERGED_BYTES = 1 << 20
_MAX_MERGED_MANIFESTS = 100
"""Maximum number of manifests that one commit merges. Each of these manifests may cost a read request."""


def manifests_to_merge(manifests: Sequence[ManifestFile], properties: Mapping[str, str]) -> list[ManifestFile]:
    """Return the manifests to merge into one, all of one partition spec. Empty if there are too few small manifests.

    Each commit adds a manifest. When a partition spec has 20 small manifests, a commit merges the smallest ones into a
    new manifest of at most 1 MiB, so no commit rewrites more than 1 MiB. A manifest of at most 512 KiB is small. The
    table properties `commit.manifest.*` override these numbers. This function ignores invalid property values.

    Iceberg's own library waits for 100 manifests and merges up to 8 MB. For readers, this makes no difference.
    """
    present = dict(properties)
    if not _boolean(present, TableProperties.MANIFEST_MERGE_ENABLED, default=True):
        return []
    max_bytes = _number(present, TableProperties.MANIFEST_TARGET_SIZE_BYTES, _MERGED_BYTES)
    min_count = max(2, _number(present, TableProperties.MANIFEST_MIN_MERGE_COUNT, _MERGE_COUNT))
    by_spec: dict[int, list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        if _may_be_merged(manifest) and 2 * manifest.manifest_length <= max_bytes:
            by_spec[manifest.partition_spec_id].append(manifest)
    for small in by_spec.values():
        if len(small) >= min_count:
            return _smallest(small, max_bytes, max(min_count, _MAX_MERGED_MANIFESTS))
    return []


def _may_be_merged(manifest: ManifestFile) -> bool:
    """Return whether a manifest has live data files and may be merged.

    Commits do not merge encrypted manifests, manifests of delete files, and manifests of old writers that record no
    numbers of files.
    """
    counts = (manifest.added_files_count, manifest.existing_files_count)
    return (
        manifest.content == ManifestContent.DATA
        and manifest.key_metadata is None
        and None not in counts
        and any(counts)
    )


def _smallest(manifests: Sequence[ManifestFile], max_bytes: int, max_count: int) -> list[ManifestFile]:
    """Return the smallest manifests whose total size is at most `max_bytes`, and at most `max_count` manifests.

    Among manifests of equal size, older manifests come first.
    """
    chosen, size = list[ManifestFile](), 0
    for manifest in sorted(manifests, key=lambda manifest: (manifest.manifest_length, manifest.sequence_number))[
        :max_count
    ]:
        size += manifest.manifest_length
        if size > max_bytes:
            break
        chosen.append(manifest)
    return chosen


def _boolean(properties: dict[str, str], name: str, *, default: bool) -> bool:
    try:
        return property_as_bool(properties, name, default)
    except ValueError:
        return default


def _number(properties: dict[str, str], name: str, default: int) -> int:
    try:
        return property_as_int(properties, name, default) or default
    except ValueError:
        return default


# --- partition specs with types ---------------------------------------------------------------------------------------


class _TypedSpec(PartitionSpec):
    """A partition spec with a fixed partition type. PyIceberg uses this type when it writes manifests."""

    _type: StructType = PrivateAttr()

    @classmethod
    def with_type(cls, spec: PartitionSpec, type_: StructType) -> _TypedSpec:
        typed = cls.model_validate({"spec-id": spec.spec_id, "fields": spec.fields})
        typed._type = type_
        return typed

    def partition_type(self, schema: Schema) -> StructType:  # noqa: ARG002
        """Return the fixed partition type. `schema` is ignored."""
        return self._type


def _partition_type(spec: PartitionSpec, metadata: TableMetadata) -> StructType:
    """Return the type of a spec's partition values in manifests. As in Iceberg's library, all fields are optional.

    If the source column of a partition field was dropped, use the column's type in the latest schema that contains it.
    """
    return StructType(
        *(
            NestedField(field.field_id, field.name, field.transform.result_type(type_), required=False)
            if (type_ := _source_type(field.source_id, metadata)) is not None
            else NestedField(field.field_id, field.name, UnknownType(), required=False)
            for field in spec.fields
        )
    )


def _source_type(source_id: int, metadata: TableMetadata) -> IcebergType | None:
    for schema in (metadata.schema(), *reversed(metadata.schemas)):
        try:
            return schema.find_type(source_id)
        except ValueError:
            continue
    return None
