"""Floats that become doubles: every live file that holds them as floats is written anew.

The Iceberg spec lets such files stay, and Trino fails on them where a predicate meets their statistics
(trinodb/trino#30544). The schema is the table's, so the files of unfinished replacements are written anew, too.
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
from destination_datalake.tables.iceberg.branches import unpublished
from destination_datalake.tables.iceberg.files import live_files, rewritten_entry, row_level_deletes
from destination_datalake.tables.table import Rewrite, TableConflict, TableName

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile

    from destination_datalake.aws.access import AwsAccess

_logger = logging.getLogger(__name__)


class Promotion:
    """What one commit writes anew, however often it is planned: no file twice.

    `folder` (an S3 URI) is where the new files go.
    """

    def __init__(self, table: TableName, folder: str, access: AwsAccess, rewrite: Rewrite) -> None:
        self._table = table
        self._folder = folder
        self._access = access
        self._rewrite = rewrite
        self._written: dict[tuple[str, frozenset[int]], Rewritten] = {}
        self._swapped: list[Rewritten] = []
        self._left = 0
        self._columns = ""
        self._started = time.monotonic()

    def swap(self, table: Table, transaction: Transaction, to_double: frozenset[int]) -> None:
        """Write the files anew and put them in the place of the old ones: one overwrite snapshot for each branch.

        `to_double` are the ids of the fields, none if another writer was faster. Raises TableConflict if that would
        bring deleted rows back.
        """
        self._swapped, self._left = [], 0
        if not to_double:
            return
        names = [table.schema().find_column_name(id_) or "" for id_ in to_double]
        self._columns = ", ".join(sorted(names))
        branches = [branch for branch in (MAIN_BRANCH, *unpublished(table.metadata)) if branch in table.metadata.refs]
        held = {branch: self._parquet_files(table, branch) for branch in branches}
        self._write({file.file_path for files in held.values() for file in files}, to_double)
        for branch, files in held.items():
            pairs = [(file, self._written[file.file_path, to_double]) for file in files]
            changed = [(old, new) for old, new in pairs if new.target != old.file_path]
            # A file has counts for a column that it holds; by name only, if it holds it and was not written anew.
            self._left += sum(
                not to_double.isdisjoint(old.value_counts or ()) for old, new in pairs if new.target == old.file_path
            )
            if changed:
                self._swapped += [new for _, new in changed]
                with transaction.update_snapshot(branch=branch).overwrite() as overwrite:
                    for old, new in changed:
                        overwrite.delete_data_file(old)
                        overwrite.append_data_file(rewritten_entry(old, new, to_double, table.metadata))

    def conclude(self) -> None:
        """Say what was done, now that it is committed; what was written and is not needed after all is removed."""
        if self._swapped:
            _logger.info(
                "Table %s: column %s became double. The %d files that held it as float were written anew "
                "(%.1f MB, %.1f s).",
                self._table,
                self._columns,
                len(self._swapped),
                sum(file.size for file in self._swapped) / 1e6,
                time.monotonic() - self._started,
            )
        if self._left:
            _logger.warning(
                "Table %s: column %s became double, and files that others wrote without field ids (%d) hold it as "
                "float still. Some engines (Trino) fail on them where they filter by it: let one rewrite them.",
                self._table,
                self._columns,
                self._left,
            )

    def unused(self) -> list[Rewritten]:
        """Return what was written and stands in no commit, provided that the last one planned was made."""
        swapped = {file.target for file in self._swapped}
        return [file for file in self.written() if file.target not in swapped]

    def written(self) -> list[Rewritten]:
        """Return all that was written, or begun."""
        return [file for file in self._written.values() if file.target != file.source]

    def _parquet_files(self, table: Table, branch: str) -> list[IcebergFile]:
        head = table.metadata.refs[branch].snapshot_id
        files = [file for file in live_files(table, head) if file.file_format == FileFormat.PARQUET]
        if files and row_level_deletes(table, head):
            raise TableConflict(
                f"Cannot write to table {self._table}: its column {self._columns} must become double, for which the "
                f"files that hold it as float must be written anew, and on branch {branch} rows of such files are "
                "deleted by delete files, which would no longer apply. Compact the table (in Athena OPTIMIZE, in Spark "
                "rewrite_data_files with delete-file-threshold 1), or make the column double, and sync again."
            )
        return files

    def _write(self, paths: set[str], to_double: frozenset[int]) -> None:
        new = sorted(path for path in paths if (path, to_double) not in self._written)
        tasks = [
            RewriteTask(path, f"{self._folder}/{uuid4().hex}.parquet", {}, self._access, to_double) for path in new
        ]
        if not tasks:
            return
        try:
            self._written |= {(file.source, to_double): file for file in self._rewrite(tasks)}
        except RewriteFailed:
            # Which of them are there is not said.
            self._written |= {(task.source, to_double): Rewritten(task.source, task.target, 0, 0) for task in tasks}
            raise
