"""The files of a unit without partitions: one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.upload import Upload
from destination_datalake.aws.withdrawal import withdraw_all
from destination_datalake.files.formats.field_ids import with_field_ids
from destination_datalake.files.formats.registry import FileWriter, extension, open_file
from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.files.writing.metadata import metadata_columns
from destination_datalake.schema.arrow import arrow_field
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.narrowest import narrowest
from destination_datalake.schema.types import Field

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.records.block import Decoded


class RollingFileWriter:
    """Writes the files of one unit: a new one when the last has its target size, or when a column is widened."""

    def __init__(self, name: str, plan: FilePlan, s3: S3Client) -> None:
        self._name = name
        self._plan = plan
        self._s3 = s3
        self._columns = plan.columns
        self._schema = _file_schema(plan.columns, plan)
        self._upload: Upload | None = None
        self._writer: FileWriter | None = None
        self._rows = 0
        self._with_nulls: set[str] = set()
        self._finished: list[DataFile] = []

    def write(self, decoded: Decoded) -> pa.Array[Any]:
        """Append records; return the ids of their rows (`_airbyte_raw_id`)."""
        fitted = tuple(
            replace(column, type=narrowest(array, column.type))
            for column, array in zip(self._columns, decoded.columns, strict=True)
        )
        if fitted != self._columns:
            self._finish()
            self._columns = fitted
            self._schema = _file_schema(fitted, self._plan)
        metadata = metadata_columns(decoded, self._plan.generation, self._plan.sync_id)
        own = [
            array.cast(field.type, safe=False)
            for array, field in zip(decoded.columns, list(self._schema)[len(metadata) :], strict=True)
        ]
        if not decoded.rows:
            return metadata[0]
        table = pa.Table.from_arrays([*metadata, *own], schema=self._schema)
        if self._writer is None or self._upload is None:
            ending = extension(self._plan.format, self._plan.codec)
            address = S3Address.parse(f"{self._plan.folder}/{self._name}-{len(self._finished):04d}{ending}")
            self._upload = Upload(self._s3, address.bucket, address.key, deferred=self._plan.deferred)
            self._writer = open_file(self._plan.format, self._plan.codec, self._schema, self._upload)
        self._writer.write(table)
        self._rows += decoded.rows
        self._with_nulls.update(name for name in table.column_names if table.column(name).null_count)
        if self._upload.written >= self._plan.target_bytes:
            self._finish()
        return metadata[0]

    def close(self) -> list[DataFile]:
        """Finish the open file and return all files of the unit."""
        self._finish()
        return self._finished

    def abort(self) -> None:
        """Withdraw all files of the unit."""
        with ExitStack() as steps:
            if self._upload is not None:
                steps.callback(self._upload.abort)
            steps.callback(withdraw_all, self._finished, self._s3)

    def _finish(self) -> None:
        if self._writer is None or self._upload is None:
            return
        footer = self._writer.close()
        self._finished.append(
            DataFile(
                uri=self._upload.uri,
                size=self._upload.written,
                rows=self._rows,
                columns=self._columns,
                footer=footer,
                pending_upload=self._upload.pending_upload,
                with_nulls=frozenset(self._with_nulls),
            )
        )
        self._writer = self._upload = None
        self._rows = 0
        self._with_nulls = set()


def _file_schema(columns: Sequence[Field], plan: FilePlan) -> pa.Schema:
    schema = pa.schema([arrow_field(column) for column in (*METADATA_COLUMNS, *columns)])
    return with_field_ids(schema, plan.field_ids) if plan.field_ids else schema
