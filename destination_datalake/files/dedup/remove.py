"""The removal job of a merge, as it runs on executors: files without the rows that have lost.

A file is read a few rows at a time and the new one is sent in parts while it is encoded, as in compaction: memory
depends neither on the file's size nor on the index's, but on one row group and DuckDB's limit, and has one byte for
each of the file's rows. Small files of a task are read once, and held until they are written again as one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from destination_datalake.aws.objects import Upload, delete_uncommitted, rollback_on_error
from destination_datalake.files.dedup.probe import Probed, probe
from destination_datalake.files.dedup.tasks import Removal, Removed, RemoveTask, RowSet
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import ParquetFileWriter, write_position_deletes
from destination_datalake.files.plan import SourceFile, WrittenFile
from destination_datalake.files.projection import Unsuitable, naming
from destination_datalake.files.reading import OpenedFile, StoredFile, deleted_rows, opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

_MAX_DELETE_RATIO = 0.5
"""A file with a larger share of deleted rows is rewritten: readers would read more of these than of live ones."""


def remove(tasks: Iterable[RemoveTask]) -> Iterator[Removed | Failed]:
    """Remove the rows of every task; yield a result for each. A failure does not stop the others."""
    for task in tasks:
        yield removed_of(task)


def removed_of(task: RemoveTask, stored: Sequence[StoredFile] | None = None) -> Removed | Failed:
    """Remove the rows of one task, whose files may be opened already: `stored`, in their order."""
    return attempt(partial(_removed, task, stored), partial(_problem, task))


def _problem(task: RemoveTask, error: Exception) -> Problem:
    uri = error.uri if isinstance(error, Unsuitable) else task.files[0].source.uri
    remedy = None
    if isinstance(error, Unsuitable):
        remedy = (
            f"Rows of {uri} cannot be replaced: the file {error}. Another program has written it. Let that program "
            "write the table's files again (Spark: CALL system.rewrite_data_files with the option rewrite-all), then "
            "run the sync again."
        )
    return Problem(f"Rows of {uri} could not be replaced", "replace rows of", uri, task.access, remedy)


@dataclass(frozen=True, slots=True)
class _LookedAt:
    """A file and its dead rows: a mask of all, and how many there were before.

    Of one with `erased` rows no rows may be left in S3 that position deletes hide only: it is written again.
    """

    source: SourceFile
    file: OpenedFile
    dead: NDArray[np.bool_]
    before: int
    erased: bool

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.dead))


def _removed(task: RemoveTask, stored: Sequence[StoredFile] | None) -> Removed:
    s3 = task.access.client("s3")
    content = opened((each.source for each in task.files), s3) if stored is None else stored
    files = [_looked_at(each, file, s3) for each, file in zip(task.files, content, strict=True)]
    probed = Probed()
    if task.index:
        probed = probe([each.file for each in files], [each.dead for each in files], task)
        for place, rows in probed.dead.items():
            _add(rows, files[place].dead)
    losing = {number: each for number, each in enumerate(files) if each.count > each.before or each.erased}
    beside = {number: each for number, each in losing.items() if _gets_position_deletes(each, task)}
    gone = {number: each for number, each in losing.items() if number not in beside}
    left = [each for each in gone.values() if each.count < each.source.rows]
    written: list[WrittenFile] = []
    with rollback_on_error(lambda: delete_uncommitted(written, s3)):
        written.extend(_with_position_deletes(task, each, s3) for each in beside.values())
        rewritten = _rewritten(task, left, s3) if left else None
    deletes = dict(zip(beside, written, strict=True))
    return Removed(task.name, tuple(gone), rewritten, deletes, probed.replaced, probed.deleted, probed.superseded)


def _looked_at(removal: Removal, stored: StoredFile, s3: S3Client) -> _LookedAt:
    source = removal.source
    with naming(source.uri):
        file = OpenedFile(stored)
        dead = np.zeros(source.rows, np.bool_) if (deleted := deleted_rows(source, s3)) is None else deleted
        before = int(np.count_nonzero(dead))
        for rows in filter(None, (removal.dead, removal.erased)):
            _add(rows, dead)
        return _LookedAt(source, file, dead, before, removal.erased is not None)


def _add(rows: RowSet, dead: NDArray[np.bool_]) -> None:
    dead[np.asarray(rows.rows().to_array())] = True


def _gets_position_deletes(file: _LookedAt, task: RemoveTask) -> bool:
    return task.deletes == "merge_on_read" and not file.erased and file.count <= file.source.rows * _MAX_DELETE_RATIO


def _rewritten(task: RemoveTask, files: Sequence[_LookedAt], s3: S3Client) -> WrittenFile:
    """Write the other rows of files to a new one, in their order."""
    upload = _upload(task, s3, "parquet")
    with rollback_on_error(upload.abort):
        writer = ParquetFileWriter(task.codec, task.schema, upload)
        for each in files:
            with naming(each.source.uri):
                for table in each.file.rows(task.schema, each.dead):
                    writer.write(table)
        footer = writer.close()
        upload.close()
    return WrittenFile(upload.uri, upload.written, sum(each.source.rows - each.count for each in files), footer)


def _with_position_deletes(task: RemoveTask, file: _LookedAt, s3: S3Client) -> WrittenFile:
    """Write a file that names all dead rows."""
    upload = _upload(task, s3, "deletes.parquet")
    positions = np.flatnonzero(file.dead)
    with rollback_on_error(upload.abort):
        footer = write_position_deletes(file.source.uri, positions, upload)
        upload.close()
    return WrittenFile(upload.uri, upload.written, len(positions), footer)


def _upload(task: RemoveTask, s3: S3Client, ending: str) -> Upload:
    # An attempt that Spark has given up may still run: its file has a name of its own.
    return Upload(s3, f"{task.folder}/{task.name}-{secrets.token_hex(4)}.{ending}", deferred=False)
