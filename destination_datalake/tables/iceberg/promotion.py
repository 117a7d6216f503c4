"""Promotion of float columns to double: every live data file that holds them as float is rewritten.

The Iceberg spec permits such files to stay, but Trino fails on them when a predicate meets their float statistics
(trinodb/trino#30544). Branches share the table's schema, so files of pending rows are rewritten too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.files.plan import RewriteFailed, RewriteTask, Rewritten
from destination_datalake.tables.iceberg.branches import still_unique, unpublished_branches
from destination_datalake.tables.iceberg.snapshots.branch_files import (
    BranchFiles,
    LiveFile,
    as_sources,
    unneeded_deletes,
)
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.entries import rewritten_entry
from destination_datalake.tables.table import Rewrite, TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_logger = logging.getLogger(__name__)


class Promotion:
    """The rewritten files of one commit. Retries of the commit reuse them: no file is rewritten twice.

    `folder` (an S3 URI without a slash at its end) is where new files are written, in it in the folder of the old one.
    """

    def __init__(self, table: TableName, folder: str, access: AwsAccess, rewrite: Rewrite) -> None:
        self._table = table
        self._folder = folder
        self._access = access
        self._rewrite = rewrite
        self._rewritten: dict[tuple[tuple[str, ...], frozenset[int]], Rewritten] = {}
        self._added: list[Rewritten] = []
        self._without_field_ids = 0
        self._columns = ""
        self._started = time.monotonic()

    def rewrite_files(self, table: Table, transaction: Transaction, to_double: frozenset[int]) -> None:
        """Rewrite the files of each branch and replace them by the new ones in one overwrite snapshot.

        `to_double` are the ids of the promoted fields; none if another writer has promoted them. Rows that position
        deletes remove are not in the new files. Raises TableConflict if those of equality deletes would come back.
        """
        self._added, self._without_field_ids = [], 0
        if not to_double:
            return
        names = [table.schema().find_column_name(id_) or "" for id_ in to_double]
        self._columns = ", ".join(sorted(names))
        branches = [
            branch for branch in (MAIN_BRANCH, *unpublished_branches(table.metadata)) if branch in table.metadata.refs
        ]
        live = {branch: BranchFiles(metrics=None).of(table, branch) for branch in branches}
        files = {branch: self._rewritable(of_branch, branch) for branch, of_branch in live.items()}
        self._write([file for of_branch in files.values() for file in of_branch], to_double)
        for branch, of_branch in files.items():
            replaced = []
            added = []
            for file in of_branch:
                new = self._rewritten[file.state, to_double]
                if new.uri == file.entry.file_path:
                    # It has value counts for its columns, so with counts of these it lacks field ids.
                    self._without_field_ids += not to_double.isdisjoint(file.entry.value_counts or ())
                    continue
                replaced.append(file)
                if new.rows:
                    self._added.append(new)
                    added.append(rewritten_entry(file.entry, new, to_double))
            unneeded = unneeded_deletes(replaced, live[branch])
            if replaced:
                removed = [*(file.entry for file in replaced), *unneeded]
                change_branch(Change(added, removed), branch, table, transaction, still_unique(branch, table.metadata))

    def log(self) -> None:
        """Log the promotion, once it is committed."""
        if self._added:
            _logger.info(
                "Table %s: column %s became double. The %d files that held it as float were rewritten "
                "(%.1f MB, %.1f s).",
                self._table,
                self._columns,
                len(self._added),
                sum(file.size for file in self._added) / 1e6,
                time.monotonic() - self._started,
            )
        if self._without_field_ids:
            _logger.warning(
                "Table %s: column %s became double, and files of other writers without field ids (%d) still hold it as "
                "float. Some engines (Trino) fail on them when they filter by it: rewrite them with another engine.",
                self._table,
                self._columns,
                self._without_field_ids,
            )

    def orphans(self) -> list[Rewritten]:
        """Return the rewritten files that are not in the table, provided that the last attempt was committed."""
        added = {file.uri for file in self._added}
        return [file for file in self.written() if file.uri not in added]

    def written(self) -> list[Rewritten]:
        """Return all rewritten files of all attempts, partly written ones included."""
        return [file for file in self._rewritten.values() if file.uri != file.source]

    def _rewritable(self, live: Sequence[LiveFile], branch: str) -> list[LiveFile]:
        """Return the Parquet files of a branch. Raises TableConflict if equality deletes apply to some."""
        files = [file for file in live if file.entry.file_format == FileFormat.PARQUET]
        if any(file.has_equality_deletes for file in files):
            raise TableConflict(
                f"Cannot write to table {self._table}: its column {self._columns} must become double, for which the "
                f"files that hold it as float must be rewritten, and on branch {branch} rows of such files are "
                "deleted by equality deletes, which would no longer apply. Compact the table (in Athena OPTIMIZE, in "
                "Spark rewrite_data_files with delete-file-threshold 1), or make the column double, and sync again."
            )
        return files

    def _write(self, files: Iterable[LiveFile], to_double: frozenset[int]) -> None:
        missing = {file.state: file for file in files if (file.state, to_double) not in self._rewritten}
        tasks = {key: self._task(file, to_double) for key, file in sorted(missing.items())}
        if not tasks:
            return
        try:
            done = {file.uri: file for file in self._rewrite([*tasks.values()])}
        except RewriteFailed:
            # Which of the targets were written is unknown.
            for key, task in tasks.items():
                self._rewritten[key, to_double] = Rewritten(task.target, 0, 0, source=task.source)
            raise
        for key, task in tasks.items():
            self._rewritten[key, to_double] = done.get(task.target) or done[task.source]

    def _task(self, file: LiveFile, to_double: frozenset[int]) -> RewriteTask:
        path = file.entry.file_path
        target = f"{self._folder_of(path)}/{uuid4().hex}.parquet"
        return RewriteTask(path, target, {}, self._access, to_double, as_sources(file.deletes))

    def _folder_of(self, path: str) -> str:
        """Return the folder for the new file: that of the file at `path`, its partition's, if that is in ours."""
        return path.rpartition("/")[0] if path.startswith(f"{self._folder}/") else self._folder
