"""Compacts an Iceberg table: rewrites small files on main as fewer large files. Readers see the same rows.

The new files do not contain rows that position deletes have removed. The commit also removes the delete files that no
remaining file needs. Compaction rewrites files with many deleted rows even if they are large.

The old files that become one new file form a bin. Compaction runs in rounds. Each round rewrites some bins, and commits
them in one snapshot. It commits a bin only if all old files of the bin are still live and have the same delete files as
before. Otherwise, the round deletes the new file, and the next round plans the old files again. If the process is
killed, the new files of the current round become orphan files.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import uuid4

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.errors import ConnectorError, counted
from destination_datalake.files.jobs import Failed
from destination_datalake.files.plan import Compacted, CompactResult, CompactTask
from destination_datalake.schema.types import Field
from destination_datalake.tables.iceberg.branches import inherited_uniqueness
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.compatibility import incompatibility
from destination_datalake.tables.iceberg.layout import is_written, sort_order, source_paths
from destination_datalake.tables.iceberg.rework import Rework, folder_of_new_file
from destination_datalake.tables.iceberg.schema import arrow_schema, column_types
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import (
    BranchFiles,
    Entries,
    LiveFile,
    PartitionKey,
    applies_only_to,
    unneeded_deletes,
)
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.errors import Failure
    from destination_datalake.partitioning.spec import SortOrder
    from destination_datalake.tables.catalog import TableCatalog

_logger = logging.getLogger(__name__)


CompactFiles = Callable[[Sequence[CompactTask]], Sequence[CompactResult]]
"""A function that compacts files on Spark's executors, and returns one result per task."""

_BYTES_PER_COMMIT = 8 * 1024**3
_BINS_PER_COMMIT = 64
"""Maximum total size in bytes, and maximum number, of the bins in one round.

The limits are low because a killed process loses the work of its round, and because the compaction checks its time
limit only between rounds.
"""

_MAX_DELETED_RATIO = 0.2
"""Compaction rewrites a file of any size if more than this fraction of the file's rows is deleted."""

_FILES_PER_COMMIT = 10_000
"""Maximum number of files that one commit removes.

The commit holds the manifest entries of these files in memory: 110 MB for 10,000 files with 20 columns.
"""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The bins to compact in one state of a table. Compaction tries to rewrite the files of each bin as one file."""

    bins: tuple[tuple[LiveFile, ...], ...]
    notes: tuple[str, ...]
    """Clauses about the table that name the files which the compaction skips, and the reasons."""

    @property
    def files(self) -> int:
        """The number of files in all bins."""
        return sum(map(len, self.bins))

    @property
    def bytes(self) -> int:
        """The size of the files in all bins, in bytes."""
        return sum(file.entry.file_size_in_bytes for bin_ in self.bins for file in bin_)


@dataclass(slots=True)
class CompactionReport:
    """The report of a compaction: the files before and after all commits, and the failures. Sizes are in bytes."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    commits: int = 0
    notes: tuple[str, ...] = ()
    """Clauses about files that the last plan or an executor has skipped, with the reasons."""
    failures: list[Failure] = field(default_factory=list)
    """The failures of jobs. Each failure belongs to one bin that was not compacted."""


def plan_compaction(
    table: Table, target_bytes: int, skip: frozenset[str] = frozenset(), reader: BranchFiles | None = None
) -> CompactionPlan:
    """Return the bins of files on main to rewrite as files of about `target_bytes` each.

    Leaves out the files whose paths are in `skip`. If the connector cannot compact the table, the plan contains no
    bins, and a note with the reason. Raises TableConflict if a manifest cannot be read completely.
    """
    if (reason := incompatibility(table.metadata)) is not None:
        return CompactionPlan((), (reason,))
    if arrow_schema(table.schema()) is None:
        return CompactionPlan((), ("it contains columns of types that this connector does not support",))
    candidates, notes = _candidates((reader or BranchFiles()).on_branch(table, MAIN_BRANCH))
    partitions: dict[PartitionKey, list[LiveFile]] = defaultdict(list)
    for file in candidates:
        if file.path not in skip:
            partitions[file.partition].append(file)
    packed = [tuple(bin_) for files in partitions.values() for bin_ in bins(files, _size, target_bytes)]
    in_bins = {file.path for bin_ in packed for file in bin_}
    mostly_deleted = (file for files in partitions.values() for file in files if delete_ratio_exceeded(file))
    packed += [(file,) for file in mostly_deleted if file.path not in in_bins]
    return CompactionPlan(tuple(packed), notes)


def _candidates(live: Sequence[LiveFile]) -> tuple[list[LiveFile], tuple[str, ...]]:
    """Return the files that can be compacted, ordered by sequence number, and notes about all other files."""
    times = Counter(file.path for file in live)
    candidates: list[LiveFile] = []
    with_equality_deletes = of_other_formats = repeated = 0
    for file in live:
        if file.entry.file_format != FileFormat.PARQUET:
            of_other_formats += 1
        elif file.has_equality_deletes:
            with_equality_deletes += 1
        elif times[file.path] > 1:  # A commit removes files by path, so it would remove all entries of the file.
            repeated += 1
        else:
            candidates.append(file)
    # In the order of commits, a bin combines files that were written at similar times.
    candidates.sort(key=lambda file: file.sequence or 0)
    notes = (
        (with_equality_deletes, "to which equality deletes may apply"),
        (of_other_formats, "in formats other than Parquet"),
        (repeated, "that the table lists more than once"),
    )
    return candidates, tuple(f"the compaction skips {counted(files, 'file')} {why}" for files, why in notes if files)


def delete_ratio_exceeded(file: LiveFile) -> bool:
    """Return whether more than 20 % of a file's rows are deleted, so that compaction rewrites the file at any size.

    Counts only the delete files that apply to no other file. For other delete files, the number of positions in this
    file is unknown.
    """
    deleted = sum(deletes.record_count for deletes in file.deletes if applies_only_to(deletes, file.path))
    return deleted > _MAX_DELETED_RATIO * file.entry.record_count


class TableCompaction(Rework["_Bins", "dict[str, list[LiveFile]]"]):
    """Compacts one table. `compact_on_executors` runs the jobs. Call `run` only once.

    The outcome of each commit maps the names of the committed bins to the old files that the commit has replaced.
    """

    def __init__(
        self, name: TableName, catalog: TableCatalog, compact_on_executors: CompactFiles, target_bytes: int
    ) -> None:
        operations = TableOperations(name, catalog)
        super().__init__(operations, 3, f"Cannot compact table {name}", "The next run continues the compaction.")
        self._name = name
        self._execute = compact_on_executors
        self._target_bytes = target_bytes
        self._reader = BranchFiles()
        self._report = CompactionReport()
        self._skip: set[str] = set()
        """The paths of the files that this compaction has committed or could not compact. Later rounds skip these."""
        self._reasons: dict[str, int] = defaultdict(int)
        self._bins: _Bins | None = None
        self._written: list[Compacted] = []
        """The new files that jobs have written in the current round."""

    def run(self, should_continue: Callable[[], bool] = lambda: True) -> CompactionReport:
        """Compact the table in rounds until no bins remain or `should_continue` returns False.

        Also stop after three rounds that wrote new files but, because of conflicts, committed none. Raises
        TableConflict, TableBusy, CommitStateUnknown, ConnectorError if the jobs of all bins fail, and AWS errors. The
        commits of earlier rounds stay after an error.
        """
        conflicts = 0
        while should_continue() and conflicts < 3:
            self._bins, self._written = None, []
            if (committed := self.rework()) is None:
                break
            self._add_to_report(committed[1])
            # A round without new files is no conflict: its jobs have skipped all files, so the next plan differs.
            conflicts += bool(self._written and not committed[1])
        notes = (
            f"the compaction skips {counted(count, 'file')}: {reason}"
            for reason, count in sorted(self._reasons.items())
        )
        self._report.notes = (*self._report.notes, *notes)
        return self._report

    def plan(self, table: Table) -> _Bins | None:
        """Return the bins of this round, or None if there is nothing to compact.

        All attempts of a round use the same bins, even if another writer has changed the table in the meantime.
        """
        if self._bins is None:
            plan = plan_compaction(table, self._target_bytes, frozenset(self._skip), self._reader)
            self._reader.forget_unused()
            self._report.notes = plan.notes
            self._bins = _Bins(table, {uuid4().hex: bin_ for bin_ in _next_round(plan.bins)}) if plan.bins else None
        return self._bins

    def sources(self, plan: _Bins) -> frozenset[str]:
        """Return the URIs of the old files in all bins."""
        return frozenset(file.path for files in plan.files.values() for file in files)

    def run_jobs(self, plan: _Bins) -> None:
        """Rewrite the files of each bin as one file. Raises ConnectorError only if the jobs of all bins fail."""
        tasks = [*plan.tasks(self.operations.access)]
        for task, result in zip(tasks, self._run_tasks(tasks), strict=True):
            if isinstance(result, Failed):
                self._report.failures.append(result.failure)
            else:
                for skipped in result.skipped:
                    self._skip.add(skipped.uri)
                    self._reasons[skipped.reason] += 1
            if isinstance(result, Compacted):
                self._written.append(result)
            else:
                self._skip |= {source.uri for source in task.sources}

    def change(self, plan: _Bins, table: Table, transaction: Transaction) -> dict[str, list[LiveFile]]:
        """Replace the old files of each bin with the bin's new file. Return the replaced files by the name of the bin.

        Leaves out a bin if an old file of the bin is no longer live or has other delete files than before. Also leaves
        out a bin if its new file does not fit the table's schema.
        """
        files = self._reader.on_branch(table, MAIN_BRANCH)
        live = {file.path: file for file in _candidates(files)[0]}
        entries, order = Entries(table.metadata), _sort_order(plan.table.metadata)
        # Another writer may have removed the sort order since the plan. The entries must not refer to it then.
        known = order is not None and table.metadata.sort_order_by_id(order.order_id) is not None
        valid: dict[str, list[LiveFile]] = {}
        added: list[IcebergFile] = []
        sequences: dict[str, int | None] = {}
        for file in self._written:
            order_id = order.order_id if order is not None and known and file.is_sorted else None
            old = plan.still_live(file, live)
            new = entries.of_compacted(file, old[0].entry, order_id) if old else None
            if new is not None:
                # An empty new file is not added: all of its rows were deleted. The old files are removed nevertheless.
                valid[file.name] = old
                sequences[file.uri] = plan.sequence(old)
                added += [new] if file.rows else []
        if valid:
            old = [file for files_of_bin in valid.values() for file in files_of_bin]
            removed = [*(file.entry for file in old), *unneeded_deletes(old, files)]
            change = Change(added, removed, frozenset(file.manifest for file in old), sequences, same_rows=True)
            # Repeat the summary property about unique rows, because all earlier snapshots may expire.
            change_branch(change, MAIN_BRANCH, table, transaction, inherited_uniqueness(MAIN_BRANCH, table.metadata))
        return valid

    def unused(self, outcome: Mapping[str, list[LiveFile]] | None) -> list[Compacted]:
        """Return the new files of the bins that were not committed, and the new files without rows."""
        return [file for file in self._written if not file.rows or file.name not in (outcome or ())]

    def _run_tasks(self, tasks: Sequence[CompactTask]) -> Sequence[CompactResult]:
        """Run all tasks in one job. If this job fails, run one job per task.

        If one bin makes its Spark worker crash, the separate jobs still compact the other bins. Raises ConnectorError
        if all jobs fail.
        """
        try:
            return self._execute(tasks)
        except ConnectorError:
            if len(tasks) == 1:
                raise
        _logger.warning(
            "Table %s: a compaction job failed. Its %d groups of files are now compacted in separate jobs.",
            self._name,
            len(tasks),
        )
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

    def _add_to_report(self, committed: Mapping[str, list[LiveFile]]) -> None:
        report = self._report
        report.commits += bool(committed)
        for file in self._written:
            if (old := committed.get(file.name)) is not None:
                # A new file may still be small. Another round would rewrite it again.
                self._skip.add(file.uri)
                report.files_before += len(old)
                report.bytes_before += sum(map(_size, old))
                report.files_after += bool(file.rows)
                report.bytes_after += file.size if file.rows else 0
                report.rows += file.rows


def _next_round(packed: Sequence[tuple[LiveFile, ...]]) -> Iterator[tuple[LiveFile, ...]]:
    """Yield the first bins, as many as the limits of a round allow, but at least one."""
    files = size = 0
    for number, bin_ in enumerate(packed[:_BINS_PER_COMMIT]):
        files += len(bin_)
        size += sum(map(_size, bin_))
        # Yield the first bin whatever its size, because a round without bins would end the compaction.
        if number and (files > _FILES_PER_COMMIT or size > _BYTES_PER_COMMIT):
            return
        yield bin_


def _size(file: LiveFile) -> int:
    return file.entry.file_size_in_bytes


# --- the bins of one round --------------------------------------------------------------------------------------------


_CODECS = {"zstd": "ZSTD", "gzip": "GZIP", "snappy": "SNAPPY", "lz4": "LZ4", "brotli": "BROTLI"}
_DEFAULT_CODEC = "zstd"


@dataclass(frozen=True, slots=True)
class _Bins:
    """The bins of one round, planned on the state in `table`. `files` contains the old files of each bin, by name."""

    table: Table
    files: Mapping[str, Sequence[LiveFile]]

    def tasks(self, access: AwsAccess) -> Iterator[CompactTask]:
        """Yield the task for each bin.

        If the first file of a bin is inside the table's data folder, the new file goes to the folder of this first
        file. Otherwise, the new file goes to the data folder.
        """
        schema, order = arrow_schema(self.table.schema()), _sort_order(self.table.metadata)
        assert schema is not None
        codec = self.table.properties.get("write.parquet.compression-codec", _DEFAULT_CODEC).lower()
        data = f"{self.table.location().rstrip('/')}/data"
        for name, files in self.files.items():
            yield CompactTask(
                name,
                tuple(file.source(self.table.metadata) for file in files),
                schema,
                folder_of_new_file(files[0].path, data),
                _CODECS.get(codec, "UNCOMPRESSED"),
                order,
                access,
            )

    def still_live(self, new: Compacted, live: Mapping[str, LiveFile]) -> list[LiveFile]:
        """Return the old files that the new file `new` replaces, or an empty list if `new` must not be committed.

        A new file may replace old files only if all old files are live and have the same delete files as before, and if
        the new file contains all rows of the old files except the deleted rows.
        """
        planned = [file for file in self.files[new.name] if file.path in new.sources]
        old = [now for file in planned if (now := live.get(file.path)) is not None and now.state == file.state]
        rows = sum(file.entry.record_count for file in old)
        return old if len(old) == len(new.sources) and new.rows + new.deleted == rows else []

    def sequence(self, old: Sequence[LiveFile]) -> int | None:
        """Return the data sequence number for the new file of a bin, or None in tables of format version 1.

        Delete files with higher sequence numbers apply to the new file (Iceberg spec: Scan Planning). If an old file
        has position deletes, the new file no longer contains the deleted rows. So the new file gets the sequence number
        of the snapshot on which the bins were planned. If no old file has position deletes, the new file gets the
        highest sequence number of the old files.
        """
        planned_on = self.table.current_snapshot()
        if planned_on is not None and any(file.deletes for file in old):
            return planned_on.sequence_number
        return max((file.sequence for file in old if file.sequence is not None), default=None)


def _sort_order(metadata: TableMetadata) -> SortOrder | None:
    """Return the sort order of the table, or None if this connector cannot sort by all columns of the sort order."""
    columns = [Field(name, name, type_) for name, type_ in column_types(metadata).items() if type_ is not None]
    paths = source_paths(metadata.schema())
    sources = (paths.get(field.source_id) for field in metadata.sort_order().fields)
    if not all(path is not None and is_written(path, columns) for path in sources):
        return None
    return sort_order(metadata, columns)


# --- bin packing: the small files of a partition that become one file -------------------------------------------------


MIN_FILES = 5

MAX_FILES = 1000
"""Maximum number of files in a bin. A larger bin would keep one task busy while other tasks are idle."""

_MAX_OPEN_BINS = 16
"""Maximum number of bins that can accept further files at the same time.

With more open bins, packing would be slower, and would combine files that were written at distant times.
"""

_File = TypeVar("_File")


def is_small(size: int, target: int) -> bool:
    """Return whether a file is smaller than three quarters of the target size. Both sizes are in bytes."""
    return 4 * size < 3 * target


def bins(files: Iterable[_File], size_of: Callable[[_File], int], target: int) -> list[list[_File]]:
    """Pack the small files of one partition into bins, in the order of `files`. Return the bins that are worthwhile.

    A worthwhile bin has at least three quarters of the size `target`, in bytes, or contains at least five files. Each
    file goes into the first open bin with enough space, so that neighbouring files stay together.
    """
    open_bins: list[_Bin[_File]] = []
    full: list[_Bin[_File]] = []
    partial: list[_Bin[_File]] = []
    for file in files:
        size = size_of(file)
        if not is_small(size, target):
            continue
        bin_ = next((bin_ for bin_ in open_bins if bin_.bytes + size <= target), None)
        if bin_ is None:
            if len(open_bins) == _MAX_OPEN_BINS:
                partial.append(open_bins.pop(0))
            open_bins.append(bin_ := _Bin([], 0))
        bin_.files.append(file)
        bin_.bytes += size
        if not is_small(bin_.bytes, target):
            open_bins.remove(bin_)
            full.append(bin_)
        elif len(bin_.files) == MAX_FILES:
            open_bins.remove(bin_)
            partial.append(bin_)
    trimmed_bins = [_without_the_largest(bin_.files, size_of) for bin_ in (*partial, *open_bins)]
    return [bin_.files for bin_ in full] + [bin_ for bin_ in trimmed_bins if len(bin_) >= MIN_FILES]


# Without `eq`, `list.remove` finds a bin by identity, and does not compare the files of bins.
@dataclass(eq=False, slots=True)
class _Bin(Generic[_File]):
    files: list[_File]
    bytes: int


def _without_the_largest(files: Iterable[_File], size_of: Callable[[_File], int]) -> list[_File]:
    """Return the files in the same order, without each file that is larger than all smaller files together.

    Rewriting such a file would copy more bytes than all smaller files contain.
    """
    remaining_files = list(files)
    by_size = sorted(remaining_files, key=size_of)
    total = sum(map(size_of, remaining_files))
    while by_size and 2 * size_of(by_size[-1]) > total:
        total -= size_of(largest := by_size.pop())
        remaining_files.remove(largest)
    return remaining_files
