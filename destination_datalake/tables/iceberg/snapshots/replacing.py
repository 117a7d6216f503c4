"""Snapshots that remove files of a branch, and may add others: overwrites, compactions, and merges of pending rows.

PyIceberg finds the files to replace by predicates on their partitions, which it cannot build for all values, and writes
no delete files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.concurrent import ExecutorFactory

from destination_datalake.tables.iceberg.branches import forget_branches
from destination_datalake.tables.iceberg.snapshots.manifests import live_entries
from destination_datalake.tables.iceberg.snapshots.producers import Append, with_status
from destination_datalake.tables.iceberg.snapshots.uniqueness import still_unique

_AHEAD = 8
"""So many manifests are read at a time."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Live files and the manifests that list them, and the one file that has their rows now, None if they have none.

    `sequence` is its data sequence number, None in tables of format version 1: delete files with higher ones apply to
    it (Iceberg spec: Scan Planning).
    """

    old: tuple[IcebergFile, ...]
    manifests: frozenset[str]
    new: IcebergFile | None
    sequence: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """Files that a snapshot adds to a branch, each of any partition spec, and live files of the branch that it removes.

    Both may be data files and delete files. Added files get the snapshot's sequence number: added position deletes
    apply to all data files that are there afterwards, added ones too. `manifests` are those that list the removed
    data files, None if that is unknown: then all are read. `states` are properties by which the snapshot says something
    of its rows: it is made for them alone, if there is nothing to change.
    """

    added: Sequence[IcebergFile] = ()
    removed: Sequence[IcebergFile] = ()
    manifests: frozenset[str] | None = None
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def operation(self) -> Operation:
        """What the snapshot is to readers of changes, by the same rules as in Iceberg's own library (RowDelta)."""
        added = {file.content for file in self.added}
        if not self.removed and added <= {DataFileContent.DATA}:
            return Operation.APPEND
        return Operation.OVERWRITE if DataFileContent.DATA in added else Operation.DELETE


def merge_files(
    change: Change,
    branch: str,
    table: Table,
    transaction: Transaction,
    properties: Mapping[str, str] = EMPTY_DICT,
    without_branch: str | None = None,
) -> None:
    """Change a branch in one snapshot, unless there is nothing to change; in the same transaction forget another one.

    Delete files can be added to tables of format version 2 alone. Raises ValidationException if a file to remove is not
    live, and TableConflict as `live_entries`.
    """
    if change.added or change.removed or change.states:
        with _Replace(change.operation, branch, table, transaction, {**properties, **change.states}) as replace:
            replace.added.extend(change.added)
            replace.removed.update(change.removed)
            replace.listed_in = change.manifests
            replace.merges = True
    if without_branch is not None:
        forget_branches([without_branch], transaction)


def compact_files(
    compactions: Iterable[Compaction],
    unneeded: Iterable[IcebergFile],
    branch: str,
    table: Table,
    transaction: Transaction,
) -> None:
    """Replace files of a branch by others with the same rows, in one snapshot, which incremental readers skip.

    `unneeded` are delete files, which are removed too.
    """
    # All before it may expire.
    states = still_unique(branch, table.metadata)
    with _Replace(Operation.REPLACE, branch, table, transaction, states) as compact:
        compact.removed.update(unneeded)
        listed_in: set[str] = set()
        for each in compactions:
            compact.removed.update(each.old)
            listed_in |= each.manifests
            if each.new is not None:
                compact.added.append(each.new)
                compact.sequences[each.new.file_path] = each.sequence
        compact.listed_in = frozenset(listed_in)


class _Replace(Append):
    """Writes manifests that list removed files again without them; keeps all others as they are."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.listed_in: frozenset[str] | None = None
        self.merges = False
        """Whether manifests of earlier commits are merged too."""

    def manifests(self) -> list[ManifestFile]:
        kept = self.kept(self.previous_manifests())  # Raises if what is removed is not there.
        return [*self.by_spec(self.added_entries()), *kept]

    def kept(self, previous: Sequence[ManifestFile]) -> list[ManifestFile]:
        rewritten: list[ManifestFile] = []
        removed: list[ManifestEntry] = []
        contents = {_content(file) for file in self.removed}
        wanted = {each: None for each in previous if each.content in contents and self._may_list_removed(each)}
        untouched = [each for each in previous if each not in wanted]
        for manifest, entries in self._read([*wanted]):
            found = [entry for entry in entries if entry.data_file in self.removed]
            if not found:
                untouched.append(manifest)
                continue
            removed += [with_status(entry, ManifestEntryStatus.DELETED, self.snapshot_id) for entry in found]
            rewritten += self.by_spec(
                with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)
                for entry in entries
                if entry.data_file not in self.removed
            )
        if missing := self.removed - {entry.data_file for entry in removed}:
            paths = ", ".join(sorted(file.file_path for file in missing))
            raise ValidationException(f"Missing required files to delete: {paths}")
        return [*self.by_spec(removed), *rewritten, *(super().kept(untouched) if self.merges else untouched)]

    def _read(self, manifests: Sequence[ManifestFile]) -> Iterator[tuple[ManifestFile, list[ManifestEntry]]]:
        """Yield the live entries of manifests, a few of which are read at a time: entries take memory."""
        for first in range(0, len(manifests), _AHEAD):
            some = manifests[first : first + _AHEAD]
            read = ExecutorFactory.get_or_create().map(lambda manifest: live_entries(manifest, self.io), some)
            yield from zip(some, read, strict=True)

    def _may_list_removed(self, manifest: ManifestFile) -> bool:
        is_data = manifest.content == ManifestContent.DATA
        return not is_data or self.listed_in is None or manifest.manifest_path in self.listed_in


def _content(file: IcebergFile) -> ManifestContent:
    return ManifestContent.DATA if file.content == DataFileContent.DATA else ManifestContent.DELETES
