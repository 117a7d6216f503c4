"""The removal job on executors: remove rows by rewriting files without them, or by writing position deletes.

A task reads files in small batches, and uploads the finished parts of a new file while it encodes the rest. It needs
memory for at most one row group and DuckDB's limit, plus one byte per row of the file. If a task rewrites several small
files as one file, it keeps these small files in memory.

In a merge, a task looks up each row of a stored file in the index of pending rows (rows that no merge has included
yet). If a pending row with the same key is at least as new, the pending row replaces the stored row. If the pending row
is older, the merge removes the pending row.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from destination_datalake.aws.objects import Upload, delete_uncommitted, rollback_on_error
from destination_datalake.files.dedup.index import index_files, may_have_keys
from destination_datalake.files.dedup.tasks import Removal, Removed, RemoveTask, RowSet, add_rows, row_sets
from destination_datalake.files.dedup.versions import comparable, database, find_replaced
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import ParquetFileWriter, columns_by_id, write_position_deletes
from destination_datalake.files.plan import SourceFile, WrittenFile
from destination_datalake.files.reading import (
    OpenedFile,
    StoredFile,
    UnsupportedFile,
    deleted_rows,
    naming_file,
    open_files,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

_MAX_DELETE_RATIO = 0.5
"""Maximum share of a file's rows that position deletes may remove. If more rows must be removed, the task rewrites the
file, because readers would otherwise read more deleted rows than live rows."""


def remove(tasks: Iterable[RemoveTask]) -> Iterator[Removed | Failed]:
    """Remove the rows of each task from its files. Yield one result per task.

    If a task fails, yields a Failed for this task and continues with the next one.
    """
    for task in tasks:
        yield remove_rows(task)


def remove_rows(task: RemoveTask, stored: Sequence[StoredFile] | None = None) -> Removed | Failed:
    """Remove the rows of one task from its files. If the files are already open, `stored` contains them, in order."""
    return attempt(partial(_remove_rows, task, stored), partial(_problem, task))


def _problem(task: RemoveTask, error: Exception) -> Problem:
    uri = error.uri if isinstance(error, UnsupportedFile) else task.files[0].source.uri
    remedy = None
    if isinstance(error, UnsupportedFile):
        remedy = (
            f"Cannot replace rows of {uri}: the file {error}. Another program wrote this file. Rewrite the table's "
            "files with that program (Spark: CALL system.rewrite_data_files with the option rewrite-all), and run the "
            "sync again."
        )
    return Problem(f"Cannot replace rows of {uri}", "replace rows of", uri, task.access, remedy)


@dataclass(frozen=True, slots=True)
class _CheckedFile:
    """A file, and a mask of its dead rows.

    `dead` selects the rows that position deletes already remove, and the rows that the task must remove. `before` is
    the number of the former. If the file contains rows to erase, `erased` is True: the task must rewrite the file,
    because position deletes would only hide these rows and leave them in S3.
    """

    source: SourceFile
    file: OpenedFile
    dead: NDArray[np.bool_]
    before: int
    erased: bool

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.dead))


def _remove_rows(task: RemoveTask, stored: Sequence[StoredFile] | None) -> Removed:
    s3 = task.access.client("s3")
    content = open_files((removal.source for removal in task.files), s3) if stored is None else stored
    files = [_check(removal, file, s3) for removal, file in zip(task.files, content, strict=True)]
    probed = Probed()
    if task.index:
        probed = probe([file.file for file in files], [file.dead for file in files], task)
        for number, rows in probed.dead.items():
            _add(rows, files[number].dead)
    # An unchanged file keeps its existing position deletes, which the merge need not write again.
    changed = {number: file for number, file in enumerate(files) if file.count > file.before or file.erased}
    to_mark = {number: file for number, file in changed.items() if _gets_position_deletes(file, task)}
    to_replace = {number: file for number, file in changed.items() if number not in to_mark}
    # A file without live rows has no successor: the table only drops it.
    with_live_rows = [file for file in to_replace.values() if file.count < file.source.rows]
    written: list[WrittenFile] = []
    with rollback_on_error(lambda: delete_uncommitted(written, s3)):
        # `extend` stores each file before it requests the next, so the rollback also finds those written before an
        # error.
        written.extend(_write_deletes(task, file, s3) for file in to_mark.values())
        # Last, because `written` need not contain it: `_rewrite` aborts its own upload, and nothing can fail
        # afterwards.
        rewritten = _rewrite(task, with_live_rows, s3) if with_live_rows else None
    deletes = dict(zip(to_mark, written, strict=True))
    return Removed(task.name, tuple(to_replace), rewritten, deletes, probed.replaced, probed.deleted, probed.superseded)


def _check(removal: Removal, stored: StoredFile, s3: S3Client) -> _CheckedFile:
    source = removal.source
    with naming_file(source.uri):
        file = OpenedFile(stored)
        dead = np.zeros(source.rows, np.bool_) if (deleted := deleted_rows(source, s3)) is None else deleted
        before = int(np.count_nonzero(dead))
        for rows in filter(None, (removal.dead, removal.erased)):
            _add(rows, dead)
        return _CheckedFile(source, file, dead, before, removal.erased is not None)


def _add(rows: RowSet, dead: NDArray[np.bool_]) -> None:
    dead[np.asarray(rows.rows().to_array())] = True


def _gets_position_deletes(file: _CheckedFile, task: RemoveTask) -> bool:
    return task.deletes == "merge_on_read" and not file.erased and file.count <= file.source.rows * _MAX_DELETE_RATIO


def _rewrite(task: RemoveTask, files: Sequence[_CheckedFile], s3: S3Client) -> WrittenFile:
    """Write the live rows of all these files, in order, to one new file."""
    upload = _upload(task, s3, "parquet")
    with rollback_on_error(upload.abort):
        writer = ParquetFileWriter(task.codec, task.schema, upload)
        for file in files:
            with naming_file(file.source.uri):
                for table in file.file.rows(task.schema, file.dead):
                    writer.write(table)
        footer = writer.close()
        upload.close()
    return WrittenFile(upload.uri, upload.written, sum(file.source.rows - file.count for file in files), footer)


def _write_deletes(task: RemoveTask, file: _CheckedFile, s3: S3Client) -> WrittenFile:
    """Write a position delete file for all dead rows of `file`, including the rows that were deleted earlier."""
    upload = _upload(task, s3, "deletes.parquet")
    positions = np.flatnonzero(file.dead)
    with rollback_on_error(upload.abort):
        footer = write_position_deletes(file.source.uri, positions, upload)
        upload.close()
    return WrittenFile(upload.uri, upload.written, len(positions), footer)


def _upload(task: RemoveTask, s3: S3Client, ending: str) -> Upload:
    # Spark may retry a task while its first attempt is still running, so each attempt uses its own file name.
    return Upload(s3, f"{task.folder}/{task.name}-{secrets.token_hex(4)}.{ending}", deferred=False)


# --- Probing the index of pending rows --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of looking up the rows of a task's files in the index of pending rows.

    - `dead`: the rows that must be removed from the task's files. Keys are the numbers of the files in the task.
    - `replaced`: the number of dead rows that a pending row replaces.
    - `deleted`: the number of dead rows whose key a pending row deletes.
    - `superseded`: the pending rows that are older than a row of the task's files. Keys are the numbers of the files
      among all pending files.
    """

    dead: Mapping[int, RowSet] = field(default_factory=dict)
    replaced: int = 0
    deleted: int = 0
    superseded: Mapping[int, RowSet] = field(default_factory=dict)


def probe(files: Sequence[OpenedFile], dead: Sequence[NDArray[np.bool_]], task: RemoveTask) -> Probed:
    """Look up the rows of the task's files in the index of pending rows. Return the rows that must be removed.

    `dead` contains one mask per file. Skips the rows that the mask selects. Raises UnsupportedFile, ConnectorError and
    AWS errors. Raises OSError if the index is no longer on the disk.
    """
    replaced: dict[int, BitMap] = {}
    superseded: dict[int, BitMap] = {}
    deleted = 0
    count = sum(int(np.count_nonzero(~mask)) for mask in dead)
    with database() as (connection, scratch):
        index = index_files(task.index, scratch, task.access)
        for batch in find_replaced(connection, _rows(files, dead, task), _schema(task), count, index):
            pairs = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
            # The index has one row per key, so each stored row is in at most one pair. If the pending row loses, it is
            # the one to remove.
            wins = pairs["wins"]
            add_rows(replaced, pairs["file"][wins], pairs["position"][wins])
            add_rows(superseded, pairs["by_file"][~wins], pairs["by_position"][~wins])
            deleted += int(np.count_nonzero(pairs["is_tombstone"][wins]))
    return Probed(row_sets(replaced), sum(map(len, replaced.values())) - deleted, deleted, row_sets(superseded))


def _rows(files: Sequence[OpenedFile], dead: Sequence[NDArray[np.bool_]], task: RemoveTask) -> Iterator[pa.Table]:
    """Yield the rows whose key may be in the index, with the columns of `_schema`.

    Each row contains the number of its file in the task, and its position in the file. Omits the rows that the masks in
    `dead` select.
    """
    target, schema, bounds = _columns(task), _schema(task), [part.bounds for part in task.index]
    for place, (removal, file) in enumerate(zip(task.files, files, strict=True)):
        with naming_file(removal.source.uri):
            project = file.projection(target)
            # The target begins with the key columns.
            key = project.sources[: len(task.versions.key)]
            alive = (group for group in file.groups if not dead[place][group.first : group.first + group.rows].all())
            groups = [group for group in alive if may_have_keys(group.metadata, key, bounds)]
            for first, table in file.read(groups, project):
                positions = np.arange(first, first + table.num_rows)
                columns: list[Any] = [comparable(column) for column in table.columns]
                columns += [np.full(table.num_rows, place, np.int32), positions]
                # A deleted row must neither win over a pending row nor be counted again.
                yield pa.table(columns, schema=schema).filter(pa.array(~dead[place][positions]))


def _columns(task: RemoveTask) -> pa.Schema:
    return columns_by_id(task.schema, (*task.versions.key, *task.versions.order))


def _schema(task: RemoveTask) -> pa.Schema:
    """Return the Arrow schema of the rows that `probe` passes to `find_replaced`."""
    names = task.versions.names
    columns = [comparable(pa.nulls(0, field.type)).type for field in _columns(task)]
    return pa.schema([*zip(names, columns, strict=True), ("file", pa.int32()), ("position", pa.int64())])
