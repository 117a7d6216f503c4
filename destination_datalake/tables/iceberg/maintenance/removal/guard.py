"""Tables that must be left alone, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.address import S3Address

_GARBAGE_COLLECTION = "gc.enabled"
_TOLERATED = timedelta(hours=1)


class Unmaintained(Exception):
    """A table, or a part of the work on it, is left alone. The text completes "Table … is left alone: "."""


def is_garbage_collected(metadata: TableMetadata) -> bool:
    """Whether no other table may use the table's files (Iceberg: table properties, `gc.enabled`)."""
    return metadata.properties.get(_GARBAGE_COLLECTION, "true").lower() != "false"


def require_garbage_collection(metadata: TableMetadata) -> None:
    """Raise Unmaintained if the table says that others may use its files."""
    if not is_garbage_collected(metadata):
        raise Unmaintained(f"its property {_GARBAGE_COLLECTION} is false, so its files may be shared with other tables")


def require_clock(s3: S3Client, folder: S3Address) -> None:
    """Raise Unmaintained if this machine's clock is wrong: what is old is told by it.

    AWS refuses requests with a wrong time, but botocore then corrects the time that it signs with.
    """
    answer = s3.list_objects_v2(Bucket=folder.bucket, Prefix=f"{folder.key}/", MaxKeys=1)
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if date is not None and abs(datetime.now(UTC) - parsedate_to_datetime(date)) > _TOLERATED:
        raise Unmaintained(f"this machine's clock differs from S3's ({date}) by more than an hour. Set it")
