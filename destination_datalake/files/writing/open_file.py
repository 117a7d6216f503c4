"""A data file that is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from destination_datalake.aws.objects import Upload
from destination_datalake.files.formats.registry import FileOpener
from destination_datalake.files.plan import DataFile
from destination_datalake.files.writing.tables import FileSchema, Rows
from destination_datalake.partitioning.spec import PartitionValue

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


MAX_METADATA_BYTES = 64 * 1024 * 1024
"""The most memory for a file's metadata. With 1,000 columns no file reaches it; with 10,000, sparse, 5,000 rows do."""


class OpenFile:
    """A data file of one schema, and of one partition if there are any: rows are written, then it is uploaded."""

    def __init__(
        self,
        uri: str,
        schema: FileSchema,
        opener: FileOpener,
        s3: S3Client,
        *,
        deferred: bool,
        partition: tuple[PartitionValue, ...] = (),
        spec_id: int = 0,
        is_sorted: bool = False,
    ) -> None:
        """Send nothing yet. `opener` is of `schema`. `is_sorted` says that each run of rows will be."""
        self.schema = schema
        self._upload = Upload(s3, uri, deferred=deferred)
        self._writer = opener.open(self._upload)
        self._partition = partition
        self._spec_id = spec_id
        self._rows = 0
        self._is_sorted = is_sorted
        self._with_nulls: set[str] = set()
        self._footer = b""

    def is_complete(self, target_bytes: int) -> bool:
        """Return whether the file has its target size, or row groups and columns enough to take much memory."""
        return self.size >= target_bytes or self._writer.metadata_bytes >= MAX_METADATA_BYTES

    @property
    def size(self) -> int:
        """The bytes encoded so far."""
        return self._upload.written

    @property
    def buffered_bytes(self) -> int:
        """The bytes encoded so far that are not sent."""
        return self._upload.buffered_bytes

    def write(self, table: pa.Table) -> None:
        """Append rows of the file's schema."""
        self._writer.write(table)
        self._count(table)

    def write_row_group(self, rows: Rows, *, begins_run: bool) -> None:
        """Append rows of the file's schema, encoded at once, which releases their memory.

        `begins_run` says that they need not come after those before them in the plan's order.
        """
        self._writer.write_row_group(*rows)
        self._is_sorted = self._is_sorted and not (begins_run and self._rows)
        self._count(rows.table)

    def end(self) -> None:
        """Encode the rest. Only `upload` may follow."""
        self._footer = self._writer.close()

    def upload(self) -> DataFile:
        """Upload the rest, and return the file."""
        self._upload.close()
        return DataFile(
            uri=self._upload.uri,
            size=self._upload.written,
            rows=self._rows,
            columns=self.schema.columns,
            footer=self._footer,
            pending_upload=self._upload.pending_upload,
            with_nulls=frozenset(self._with_nulls),
            partition=self._partition,
            spec_id=self._spec_id,
            is_sorted=self._is_sorted,
        )

    def _count(self, table: pa.Table) -> None:
        self._rows += table.num_rows
        self._with_nulls.update(name for name in table.column_names if table.column(name).null_count)

    def abort(self) -> None:
        """Discard what was not sent, and abort the upload."""
        self._upload.abort()
