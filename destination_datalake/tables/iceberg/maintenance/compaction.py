"""Compaction of an Iceberg table: small files of main are rewritten as fewer large ones. Readers see the same rows.

Rows that position deletes remove are left out, and delete files that no other file needs go with the old files. Files
of which much is deleted are rewritten whatever their size.

Some bins are compacted at a time, and committed in one snapshot. A commit takes only bins whose files are all live then
with the same delete files as before; what was compacted in vain is deleted, and planned anew. A killed compaction
leaves files that no table has, for the removal of orphans.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.aws.objects import delete_uncommitted
from destination_datalake.errors import ConnectorError
from destination_datalake.files.jobs import Failed
from destination_datalake.files.plan import Compacted, CompactResult, CompactTask
from destination_datalake.tables.iceberg.arrow_schema import arrow_schema
from destination_datalake.tables.iceberg.compatibility import incompatibility
from destination_datalake.tables.iceberg.maintenance.bins import bins
from destination_datalake.tables.iceberg.maintenance.candidates import Candidate, Manifests
from destination_datalake.tables.iceberg.maintenance.rounds import Compaction, Round
from destination_datalake.tables.iceberg.metadata.operations import TableOperations
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.deletes import PartitionKey
from destination_datalake.tables.iceberg.snapshots.uniqueness import still_unique
from destination_datalake.tables.table import TableBusy, TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.errors import Failure

_logger = logging.getLogger(__name__)

CompactFiles = Callable[[Sequence[CompactTask]], Sequence[CompactResult]]
"""Compacts files on the executors: a result for each task."""

_BYTES_PER_COMMIT = 8 * 1024**3
_BINS_PER_COMMIT = 64
"""What a kill loses, and how often it is asked whether there is time for more: 64 bins of 128 MB are 8 GB."""

_FILES_PER_COMMIT = 10_000
"""A commit has the manifest entries of all files in memory that it removes: 110 MB for so many of 20 columns."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction would do to the table as it is. Each bin becomes one file, or none if that cannot be had."""

    bins: tuple[tuple[Candidate, ...], ...]
    notes: tuple[str, ...]
    """Which files are left as they are, and why: clauses about the table."""

    @property
    def files(self) -> int:
        """How many files would be rewritten."""
        return sum(map(len, self.bins))

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(each.file.file_size_in_bytes for bin_ in self.bins for each in bin_)


@dataclass(slots=True)
class CompactionReport:
    """What was committed, and what was not. Sizes are in bytes."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    commits: int = 0
    notes: tuple[str, ...] = ()
    """As in the plan, with what the executors have found."""
    failures: list[Failure] = field(default_factory=list)
    """Of bins that are left as they were."""


def plan_compaction(
    table: Table, target_bytes: int, leave: frozenset[str] = frozenset(), manifests: Manifests | None = None
) -> CompactionPlan:
    """Return what to compact on main, for files of about `target_bytes`. Paths in `leave` are left as they are."""
    if (reason := incompatibility(table.metadata)) is not None:
        return CompactionPlan((), (reason,))
    if arrow_schema(table.schema()) is None:
        return CompactionPlan((), ("it has columns of types that this connector does not write",))
    found = (manifests or Manifests()).candidates(table, MAIN_BRANCH)
    partitions: dict[PartitionKey, list[Candidate]] = defaultdict(list)
    for each in found.files:
        if each.file.file_path not in leave:
            partitions[each.partition].append(each)
    packed = [tuple(bin_) for files in partitions.values() for bin_ in bins(files, _size, target_bytes)]
    in_bins = {each.file.file_path for bin_ in packed for each in bin_}
    worn = (each for files in partitions.values() for each in files if each.is_worn)
    packed += [(each,) for each in worn if each.file.file_path not in in_bins]
    notes = []
    if found.with_equality_deletes:
        notes.append(f"equality deletes may apply to {found.with_equality_deletes} of its files")
    if found.of_other_formats:
        notes.append(f"{found.of_other_formats} of its files are no Parquet files")
    if found.repeated:
        notes.append(f"{found.repeated} of its entries are of files that it lists more than once")
    return CompactionPlan(tuple(packed), tuple(notes))


def compact(
    name: TableName,
    access: AwsAccess,
    compact_on_executors: CompactFiles,
    target_bytes: int,
    may_go_on: Callable[[], bool] = lambda: True,
) -> CompactionReport:
    """Compact the table, as long as `may_go_on` before each further commit.

    Raises TableBusy, CommitStateUnknown, errors of AWS, and what `compact_on_executors` raises; earlier commits stay.
    """
    return _TableCompaction(name, access, compact_on_executors, target_bytes).run(may_go_on)


class _TableCompaction:
    def __init__(self, name: TableName, access: AwsAccess, execute: CompactFiles, target_bytes: int) -> None:
        self._name = name
        self._access = access
        self._execute = execute
        self._target_bytes = target_bytes
        self._operations = TableOperations(name, access)
        self._manifests = Manifests()
        self._report = CompactionReport()
        self._leave: set[str] = set()
        """Files that came of this compaction, and those that could not be compacted."""
        self._reasons: dict[str, int] = defaultdict(int)

    def run(self, may_go_on: Callable[[], bool]) -> CompactionReport:
        conflicts = 0
        while may_go_on() and conflicts < 3:
            table = self._operations.load()
            plan = plan_compaction(table, self._target_bytes, frozenset(self._leave), self._manifests)
            self._report.notes = plan.notes
            if not plan.bins:
                break
            chosen = Round(table, {uuid4().hex: bin_ for bin_ in _first(plan.bins)})
            done = self._compacted(chosen)
            if done and not self._commit(done, chosen):
                conflicts += 1
        found = (f"{count} of its files: {reason}" for reason, count in sorted(self._reasons.items()))
        self._report.notes = (*self._report.notes, *found)
        return self._report

    def _executed(self, tasks: Sequence[CompactTask]) -> Sequence[CompactResult]:
        """Run one job; if it fails, one for each bin, so that a bin that kills its worker does not stop the others.

        Raises ConnectorError if all fail.
        """
        try:
            return self._execute(tasks)
        except ConnectorError:
            if len(tasks) == 1:
                raise
        _logger.warning("Table %s: a compaction failed; its %d files are tried one by one.", self._name, len(tasks))
        results: list[CompactResult] = []
        errors: list[ConnectorError] = []
        for task in tasks:
            try:
                results += self._execute([task])
            except ConnectorError as error:
                errors.append(error)
                results.append(Failed(error.failure))
        if len(errors) == len(tasks):
            raise errors[-1]
        return results

    def _compacted(self, chosen: Round) -> list[Compacted]:
        tasks = list(chosen.tasks(self._access))
        done: list[Compacted] = []
        for task, result in zip(tasks, self._executed(tasks), strict=True):
            if isinstance(result, Failed):
                self._report.failures.append(result.failure)
            else:
                for left in result.left:
                    self._leave.add(left.uri)
                    self._reasons[left.reason] += 1
            if isinstance(result, Compacted):
                done.append(result)
            else:
                self._leave |= {source.uri for source in task.sources}
        return done

    def _commit(self, done: list[Compacted], chosen: Round) -> bool:
        """Commit what is still valid; return whether anything is. Delete the files of the rest."""

        def build(table: Table, transaction: Transaction) -> dict[str, Compaction]:
            valid, unneeded = chosen.valid(done, table, self._manifests)
            if valid:
                # What the head says of its rows is said again: all snapshots before this one may expire.
                says = still_unique(MAIN_BRANCH, table.metadata)
                change_branch(_change(valid.values(), unneeded), MAIN_BRANCH, table, transaction, says)
            return valid

        try:
            _, committed = self._operations.commit(build)
        except TableBusy:
            self._delete(done)
            raise
        self._delete([file for file in done if file.name not in committed or not file.rows])
        for file in done:
            if (compaction := committed.get(file.name)) is not None:
                self._leave.add(file.uri)
                self._report.files_before += len(compaction.old)
                self._report.bytes_before += sum(old.file_size_in_bytes for old in compaction.old)
                self._report.files_after += compaction.new is not None
                self._report.bytes_after += file.size if compaction.new is not None else 0
                self._report.rows += file.rows
        self._report.commits += bool(committed)
        return bool(committed)

    def _delete(self, files: Sequence[Compacted]) -> None:
        """Delete files that no table has. A failure is logged and changes no outcome."""
        try:
            delete_uncommitted(files, self._access.client("s3"))
        except Exception:
            _logger.warning("Unused files of table %s could not be deleted.", self._name, exc_info=True)


def _change(compactions: Iterable[Compaction], unneeded: Sequence[IcebergFile]) -> Change:
    """Return the change of compactions; `unneeded` are delete files that go with the old files."""
    added: list[IcebergFile] = []
    removed, manifests, sequences = [*unneeded], set[str](), dict[str, int | None]()
    for each in compactions:
        removed += each.old
        manifests |= each.manifests
        if each.new is not None:
            added.append(each.new)
            sequences[each.new.file_path] = each.sequence
    return Change(added, removed, frozenset(manifests), sequences, same_rows=True)


def _first(packed: Sequence[tuple[Candidate, ...]]) -> Iterator[tuple[Candidate, ...]]:
    """Yield the bins of the next commit, at least one."""
    files = size = 0
    for number, bin_ in enumerate(packed[:_BINS_PER_COMMIT]):
        files += len(bin_)
        size += sum(map(_size, bin_))
        if number and (files > _FILES_PER_COMMIT or size > _BYTES_PER_COMMIT):
            return
        yield bin_


def _size(candidate: Candidate) -> int:
    return candidate.file.file_size_in_bytes
