"""What a merge changes in the table, and what it says about that in the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile as IcebergFile

from destination_datalake.files.dedup.tasks import Removed
from destination_datalake.tables.iceberg.dedup.files import LiveFile
from destination_datalake.tables.iceberg.dedup.jobs import MergeJobs, united
from destination_datalake.tables.iceberg.dedup.plan import MergePlan
from destination_datalake.tables.iceberg.snapshots.deletes import is_for_one
from destination_datalake.tables.iceberg.snapshots.entries import Entries, position_deletes_entry
from destination_datalake.tables.iceberg.snapshots.manifests import live_entries
from destination_datalake.tables.iceberg.snapshots.replacing import Change

if TYPE_CHECKING:
    from destination_datalake.files.dedup.tasks import NewFile

_HIGH_AMPLIFICATION = 20


@dataclass(frozen=True, slots=True)
class Superseded:
    """The URIs of what the pending branch alone seems to have had, and the sequence number of its first commit.

    None of it existed long before that commit.
    """

    files: tuple[str, ...] = ()
    since: int = 0


@dataclass(slots=True)
class Outcome:
    """The change of a branch that a merge is, and its figures. Sizes are in bytes."""

    added: list[IcebergFile] = field(default_factory=list)
    removed: list[IcebergFile] = field(default_factory=list)
    listed_in: set[str] = field(default_factory=set)
    """The manifests that may list what is removed."""
    used: set[str] = field(default_factory=set)
    """The URIs of new files that the table has then."""
    superseded: Superseded = Superseded()
    pending_rows: int = 0
    pending_bytes: int = 0
    inserted: int = 0
    replaced: int = 0
    deleted: int = 0
    rewritten: int = 0
    with_deletes: int = 0
    by_reference: int = 0
    bytes_written: int = 0

    @property
    def change(self) -> Change:
        """What is committed."""
        return Change(self.added, self.removed, frozenset(self.listed_in))

    @property
    def amplification(self) -> float:
        """How many bytes are written for each byte that was pending."""
        return self.bytes_written / max(1, self.pending_bytes)

    def describe(self, key: str, *, copy_on_write: bool) -> str:
        """Return the line for the log, without the table."""
        deletes = f", {self.with_deletes} got position deletes" if self.with_deletes else ""
        text = (
            f"{self.pending_rows} rows were merged by ({key}): {self.inserted} inserted, {self.replaced} replaced, "
            f"{self.deleted} deleted. {self.rewritten} files were rewritten{deletes}, {self.by_reference} added as "
            f"they were: {self.bytes_written / 1e6:.1f} MB written for {self.pending_bytes / 1e6:.1f} MB "
            f"({self.amplification:.1f} times as much)."
        )
        if self.amplification <= _HIGH_AMPLIFICATION:
            return text
        option = "dedup.deletes merge_on_read, " if copy_on_write else ""
        return (
            f"{text} Each file with one replaced row is written again: {option}partitioning or sorting by the key "
            "(partition_by, sort_by), or fewer syncs with more records would write less."
        )


def outcome(plan: MergePlan, jobs: MergeJobs) -> Outcome:
    """Return what follows from a plan whose jobs are done."""
    return _Outcome(plan, jobs).build()


class _Outcome:
    def __init__(self, plan: MergePlan, jobs: MergeJobs) -> None:
        self._plan = plan
        self._jobs = jobs
        self._entries = Entries(plan.metadata)
        self._found = Outcome()

    def build(self) -> Outcome:
        plan, found = self._plan, self._found
        stored = self._jobs.from_stored(plan)
        for stored_file, changed in stored:
            self._replace(stored_file, changed)
        pending = self._jobs.from_pending(plan)
        entries = self._arriving()
        for number, file in enumerate(plan.pending):
            result = pending.get(number)
            if not plan.arrives(number):
                if result is not None:
                    self._replace(file, result)
            elif result is None or not (result.emptied or result.rewritten):
                found.added.append(entries[file.path])
                found.by_reference += 1
                if result is not None and result.position_deletes is not None:
                    self._add_deletes(file, result.position_deletes)
                else:
                    found.added += [each for each in file.deletes if each not in found.added]
            elif result.rewritten is not None:
                self._add(file, result.rewritten)
        self._count([changed for _, changed in stored])
        return found

    def _replace(self, file: LiveFile, result: Removed) -> None:
        """Put a file's new form into the place of the one that is in the branch."""
        if not (result.emptied or result.rewritten or result.position_deletes):
            return
        if deletes := [each for each in file.deletes if is_for_one(each, file.path)]:
            self._found.removed += deletes
            self._found.listed_in |= self._plan.manifests_of_deletes
        if result.position_deletes is not None:
            self._add_deletes(file, result.position_deletes)
            return
        self._found.removed.append(file.entry)
        self._found.listed_in.add(file.manifest)
        self._found.rewritten += 1
        if result.rewritten is not None:
            self._add(file, result.rewritten)

    def _add(self, file: LiveFile, new: NewFile) -> None:
        entry = self._entries.of_compacted(new, file.entry, file.entry.sort_order_id)
        assert entry is not None, "the schema is that of the plan"
        self._found.added.append(entry)
        self._use(new)

    def _add_deletes(self, file: LiveFile, new: NewFile) -> None:
        self._found.added.append(position_deletes_entry(new, file.entry))
        self._found.with_deletes += 1
        self._use(new)

    def _use(self, new: NewFile) -> None:
        self._found.used.add(new.uri)
        self._found.bytes_written += new.size

    def _arriving(self) -> dict[str, IcebergFile]:
        """Return the entries of arriving files by path, with all metrics."""
        plan = self._plan
        wanted = {file.manifest for number, file in enumerate(plan.pending) if plan.arrives(number)}
        branch = plan.scope.pending
        ref = plan.metadata.refs.get(branch) if branch is not None else None
        if ref is None or not wanted:
            return {}
        snapshot = plan.metadata.snapshot_by_id(ref.snapshot_id)
        assert snapshot is not None
        manifests = [each for each in snapshot.manifests(plan.table.io) if each.manifest_path in wanted]
        return {
            entry.data_file.file_path: entry.data_file
            for manifest in manifests
            for entry in live_entries(manifest, plan.table.io)
        }

    def _count(self, stored: list[Removed]) -> None:
        plan, found = self._plan, self._found
        winners = self._jobs.winners(plan)
        without = united((winners.tombstones(), self._jobs.beaten(plan)))
        found.pending_rows = sum(file.entry.record_count for file in plan.pending)
        found.pending_bytes = sum(file.entry.file_size_in_bytes for file in plan.pending)
        found.replaced = sum(result.replaced for result in stored)
        found.deleted = sum(result.deleted for result in stored)
        kept = winners.keys - sum(rows.count for rows in without.values())
        found.inserted = max(0, kept - found.replaced)


def unused(written: list[Removed], used: set[str]) -> Iterator[NewFile]:
    """Yield the new files that the table does not have."""
    for result in written:
        for file in (result.rewritten, result.position_deletes):
            if file is not None and file.uri not in used:
                yield file
