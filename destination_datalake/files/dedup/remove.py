"""The removal job of a merge, as it runs on executors: files without the rows that have lost.

A file is read a few rows at a time and the new one is sent in parts while it is encoded, as in compaction: memory
depends neither on the file's size nor on the index's, but on one row group, and has one byte for each of the file's
rows.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from destination_datalake.aws.objects import Upload, undone_on_failure
from destination_datalake.files.dedup.probe import Probed, probe
from destination_datalake.files.dedup.tasks import Removed, RemoveTask
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import ParquetFileWriter, write_position_deletes
from destination_datalake.files.plan import WrittenFile
from destination_datalake.files.projection import Unsuitable
from destination_datalake.files.reading import OpenedFile, StoredFile, deleted_rows

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

_MAX_DELETE_RATIO = 0.5
"""A file with a larger share of deleted rows is rewritten: readers would read more of these than of live ones."""


def remove(tasks: Iterable[RemoveTask]) -> Iterator[Removed | Failed]:
    """Remove the rows of every task; yield a result for each. A failure does not stop the others."""
    for task in tasks:
        yield attempt(partial(_removed, task), partial(_problem, task))


def _problem(task: RemoveTask, error: Exception) -> Problem:
    uri = task.source.uri
    remedy = None
    if isinstance(error, Unsuitable):
        remedy = (
            f"Rows of {uri} cannot be replaced: the file {error}. Another program has written it. Let that program "
            "write the table's files again (Spark: CALL system.rewrite_data_files with the option rewrite-all), then "
            "run the sync again."
        )
    return Problem(f"Rows of {uri} could not be replaced", "replace rows of", uri, task.access, remedy)


def _removed(task: RemoveTask) -> Removed:
    s3 = task.access.client("s3")
    source = task.source
    file = OpenedFile(StoredFile(source, s3))
    before = _mask(source.rows) if (deleted := deleted_rows(source, s3)) is None else deleted
    dead = before.copy()
    if task.dead is not None:
        dead[np.asarray(task.dead.rows().to_array())] = True
    probed = _probed(task, file, dead)
    result = Removed(
        task.name,
        replaced=int(np.count_nonzero(probed.replaced)),
        deleted=int(np.count_nonzero(probed.deleted)),
        superseded=probed.superseded,
    )
    dead |= probed.replaced | probed.deleted
    count = int(np.count_nonzero(dead))
    if count == int(np.count_nonzero(before)):
        return result
    if count == source.rows:
        return replace(result, emptied=True)
    if task.deletes == "merge_on_read" and count <= source.rows * _MAX_DELETE_RATIO:
        return replace(result, position_deletes=_with_position_deletes(task, dead, s3))
    return replace(result, rewritten=_rewritten(task, file, dead, s3))


def _probed(task: RemoveTask, file: OpenedFile, dead: NDArray[np.bool_]) -> Probed:
    if not task.index:
        return Probed(_mask(len(dead)), _mask(len(dead)), {})
    return probe(file, dead, task.index, task.schema, task.versions, task.access)


def _rewritten(task: RemoveTask, file: OpenedFile, dead: NDArray[np.bool_], s3: S3Client) -> WrittenFile:
    """Write the other rows to a new file, in their order."""
    upload = _upload(task, s3, "parquet")
    with undone_on_failure(upload.abort):
        writer = ParquetFileWriter(task.codec, task.schema, upload)
        for table in file.rows(task.schema, dead):
            writer.write(table)
        footer = writer.close()
        upload.close()
    return WrittenFile(upload.uri, upload.written, int(np.count_nonzero(~dead)), footer)


def _with_position_deletes(task: RemoveTask, dead: NDArray[np.bool_], s3: S3Client) -> WrittenFile:
    """Write a file that names all dead rows."""
    upload = _upload(task, s3, "deletes.parquet")
    positions = np.flatnonzero(dead)
    with undone_on_failure(upload.abort):
        footer = write_position_deletes(task.source.uri, positions, upload)
        upload.close()
    return WrittenFile(upload.uri, upload.written, len(positions), footer)


def _upload(task: RemoveTask, s3: S3Client, ending: str) -> Upload:
    # An attempt that Spark has given up may still run: its file has a name of its own.
    return Upload(s3, f"{task.folder}/{task.name}-{secrets.token_hex(4)}.{ending}", deferred=False)


def _mask(rows: int) -> NDArray[np.bool_]:
    return np.zeros(rows, np.bool_)
