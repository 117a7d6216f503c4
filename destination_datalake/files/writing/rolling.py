"""The files of a unit without partitions: one after the other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from destination_datalake.aws.objects import delete_uncommitted
from destination_datalake.files.formats.registry import FileOpener, extension, opener
from destination_datalake.files.plan import FIRST, Arrival, DataFile, FilePlan
from destination_datalake.files.writing.open_file import OpenFile
from destination_datalake.files.writing.tables import BlockTables

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.records.decoded import Decoded


class RollingFileWriter:
    """Writes the files of one unit: a new one when the last has its target size, or when a column is widened."""

    def __init__(self, name: str, plan: FilePlan, s3: S3Client, arrival: Arrival = FIRST) -> None:
        self._name = name
        self._plan = plan
        self._s3 = s3
        self._tables = BlockTables(plan, arrival)
        self._opener: FileOpener | None = None
        self._open: OpenFile | None = None
        self._finished: list[DataFile] = []

    def write(self, decoded: Decoded) -> pa.Array[Any]:
        """Append records; return the ids of their rows (`_airbyte_raw_id`)."""
        ids, table = self._tables.table(decoded)
        if self._open is not None and self._open.schema is not self._tables.schema:
            self._finish()
        if not decoded.rows:
            return ids
        if self._open is None:
            self._open = self._new_file()
        self._open.write(table)
        if self._open.is_complete(self._plan.target_bytes):
            self._finish()
        return ids

    def close(self) -> list[DataFile]:
        """Finish the open file and return all files of the unit."""
        self._finish()
        return self._finished

    def abort(self) -> None:
        """Withdraw all files of the unit."""
        with ExitStack() as steps:
            if self._open is not None:
                steps.callback(self._open.abort)
            steps.callback(delete_uncommitted, self._finished, self._s3)

    def _new_file(self) -> OpenFile:
        plan, schema = self._plan, self._tables.schema
        uri = f"{plan.folder}/{self._name}-{len(self._finished):04d}{extension(plan.format, plan.codec)}"
        self._opener = opener(plan.format, plan.codec, schema.arrow)
        return OpenFile(uri, schema, self._opener, self._s3, deferred=plan.deferred)

    def _finish(self) -> None:
        if self._open is None or self._opener is None:
            return
        self._open.end()
        self._opener.close()
        self._finished.append(self._open.upload())
        self._open = None
