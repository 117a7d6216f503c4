"""Promotion of float columns to double: every live data file that holds them as float is rewritten.

The Iceberg spec permits such files to stay, but Trino fails on them when a predicate meets their float statistics
(trinodb/trino#30544). Branches share the table's schema, so files of pending rows are rewritten too.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.files.plan import RewriteFailed, RewriteTask, Rewritten
from destination_datalake.tables.iceberg.branches import unpublished_branches
from destination_datalake.tables.iceberg.snapshots.entries import rewritten_entry
from destination_datalake.tables.iceberg.snapshots.manifests import has_row_level_deletes, live_files
from destination_datalake.tables.iceberg.snapshots.replacing import replace_files
from destination_datalake.tables.table import Rewrite, TableConflict, TableName

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile

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
        self._rewritten: dict[tuple[str, frozenset[int]], Rewritten] = {}
        self._added: list[Rewritten] = []
        self._without_field_ids = 0
        self._columns = ""
        self._started = time.monotonic()

    def rewrite_files(self, table: Table, transaction: Transaction, to_double: frozenset[int]) -> None:
        """Rewrite the files of each branch and replace them by the new ones in one overwrite snapshot.

        `to_double` are the ids of the promoted fields; none if another writer has promoted them. Raises TableConflict
        if rows that delete files have deleted would come back.
        """
        self._added, self._without_field_ids = [], 0
        if not to_double:
            return
        names = [table.schema().find_column_name(id_) or "" for id_ in to_double]
        self._columns = ", ".join(sorted(names))
        branches = [
            branch for branch in (MAIN_BRANCH, *unpublished_branches(table.metadata)) if branch in table.metadata.refs
        ]
        live = {branch: self._parquet_files(table, branch) for branch in branches}
        self._write({file.file_path for files in live.values() for file in files}, to_double)
        for branch, files in live.items():
            pairs = [(file, self._rewritten[file.file_path, to_double]) for file in files]
            changed = [(old, new) for old, new in pairs if new.target != old.file_path]
            # A file has value counts for its columns, so one with counts that was not rewritten lacks field ids.
            self._without_field_ids += sum(
                not to_double.isdisjoint(old.value_counts or ()) for old, new in pairs if new.target == old.file_path
            )
            if changed:
                self._added += [new for _, new in changed]
                entries = [(old, rewritten_entry(old, new, to_double)) for old, new in changed]
                replace_files(entries, branch, table, transaction)

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
        added = {file.target for file in self._added}
        return [file for file in self.written() if file.target not in added]

    def written(self) -> list[Rewritten]:
        """Return all rewritten files of all attempts, partly written ones included."""
        return [file for file in self._rewritten.values() if file.target != file.source]

    def _parquet_files(self, table: Table, branch: str) -> list[IcebergFile]:
        head = table.metadata.refs[branch].snapshot_id
        files = [file for file in live_files(table, head) if file.file_format == FileFormat.PARQUET]
        if files and has_row_level_deletes(table, head):
            raise TableConflict(
                f"Cannot write to table {self._table}: its column {self._columns} must become double, for which the "
                f"files that hold it as float must be rewritten, and on branch {branch} rows of such files are "
                "deleted by delete files, which would no longer apply. Compact the table (in Athena OPTIMIZE, in Spark "
                "rewrite_data_files with delete-file-threshold 1), or make the column double, and sync again."
            )
        return files

    def _write(self, paths: set[str], to_double: frozenset[int]) -> None:
        missing = sorted(path for path in paths if (path, to_double) not in self._rewritten)
        tasks = [
            RewriteTask(path, f"{self._folder_of(path)}/{uuid4().hex}.parquet", {}, self._access, to_double)
            for path in missing
        ]
        if not tasks:
            return
        try:
            self._rewritten |= {(file.source, to_double): file for file in self._rewrite(tasks)}
        except RewriteFailed:
            # Which of the targets were written is unknown.
            self._rewritten |= {(task.source, to_double): Rewritten(task.source, task.target, 0, 0) for task in tasks}
            raise

    def _folder_of(self, path: str) -> str:
        """Return the folder for the new file: that of the file at `path`, its partition's, if that is in ours."""
        return path.rpartition("/")[0] if path.startswith(f"{self._folder}/") else self._folder
