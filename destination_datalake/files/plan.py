"""Data files: what their writers are told and what they answer. Values that travel between `spark` and `tables`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.upload import PendingUpload
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.schema.types import ColumnType, Field

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

FileFormat = Literal["parquet", "jsonl"]


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How one stream's records become data files of its table.

    `columns` are the stream's columns as the table has them (without the metadata columns); `field_ids` maps the
    dotted path of a column to its Iceberg field id, and is empty for tables that go by name. `folder` is the S3 URI
    that files are written under, without a slash at the end. `deferred` files are not visible until they are published.
    """

    format: FileFormat
    codec: str
    columns: tuple[Field, ...]
    field_ids: Mapping[str, int]
    folder: str
    deferred: bool
    target_bytes: int
    generation: int | None
    sync_id: int | None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that was written.

    `size` is in bytes. `columns` has the types that the values needed, which may be wider than the plan's. `footer`
    holds a Parquet file's metadata, so that nobody need read it again.
    """

    uri: str
    size: int
    rows: int
    columns: tuple[Field, ...]
    footer: bytes = field(repr=False)
    pending_upload: PendingUpload | None
    with_nulls: frozenset[str] = frozenset()
    """The top-level columns that some row has no value for, which a footer does not always say."""

    def withdraw(self, s3: S3Client) -> None:
        """Remove the file, which no table will hold."""
        if self.pending_upload is not None:
            self.pending_upload.withdraw(s3)
        else:
            where = S3Address.parse(self.uri)
            s3.delete_object(Bucket=where.bucket, Key=where.key)


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A Parquet file (`source`, an S3 URI) to be written again as `target`, with the types given for some columns.

    `columns` has top-level columns by their names in the file, whatever their case; one the file lacks is passed over.
    Types of nested columns apply to what the file has of them. Field ids stay as they are, nested ones too.
    `to_double` are the Iceberg field ids of floats, at any depth, that become doubles. A file that has none of them is
    not written.
    """

    source: str
    target: str
    columns: Mapping[str, ColumnType]
    access: AwsAccess
    to_double: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file that was written again; or one that stays as it is, and then `target` is `source`.

    `size` is in bytes; `footer` is the new file's, as in `DataFile`.
    """

    source: str
    target: str
    rows: int
    size: int
    footer: bytes = field(default=b"", repr=False, compare=False)

    def withdraw(self, s3: S3Client) -> None:
        """Remove the new file, which no table will hold."""
        where = S3Address.parse(self.target)
        s3.delete_object(Bucket=where.bucket, Key=where.key)


@dataclass(frozen=True, slots=True)
class NotRewritten:
    """A file that could not be written again; nothing is left of its target."""

    failure: Failure


class RewriteFailed(ConnectorError):
    """Files could not be written again. `failure` is one of theirs."""
