"""Deletion of a table's objects, and conditions under which no object may be deleted.

The last guard: no object outside the table's folder is ever deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from destination_datalake.aws.objects import S3Address
from destination_datalake.tables.iceberg.maintenance.references import File

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef
    from pyiceberg.table.metadata import TableMetadata


_GARBAGE_COLLECTION = "gc.enabled"
_TOLERATED = timedelta(hours=1)

_BATCH_SIZE = 1000
"""The maximum of S3's DeleteObjects."""


class MaintenanceSkipped(Exception):
    """A table, or a part of its maintenance, is skipped. The message is the reason, a clause about the table."""


def is_garbage_collected(metadata: TableMetadata) -> bool:
    """Whether files of the table may be deleted, as no other table uses them (Iceberg table property `gc.enabled`)."""
    return metadata.properties.get(_GARBAGE_COLLECTION, "true").lower() != "false"


def require_garbage_collection(metadata: TableMetadata) -> None:
    """Raise MaintenanceSkipped if other tables may use the table's files."""
    if not is_garbage_collected(metadata):
        problem = f"its property {_GARBAGE_COLLECTION} is false, so its files may be shared with other tables"
        raise MaintenanceSkipped(problem)


def require_clock(s3: S3Client, folder: S3Address) -> None:
    """Raise MaintenanceSkipped if this machine's clock is wrong: the age of files is determined by it.

    A wrong clock would not be noticed otherwise: AWS rejects requests with a wrong time, but botocore then corrects the
    time in the signature.
    """
    answer = s3.list_objects_v2(Bucket=folder.bucket, Prefix=f"{folder.key}/", MaxKeys=1)
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if date is not None and abs(datetime.now(UTC) - parsedate_to_datetime(date)) > _TOLERATED:
        raise MaintenanceSkipped(f"this machine's clock differs from S3's ({date}) by more than an hour. Set it")


class DeadlineExceeded(Exception):
    """The time limit was reached. The next run continues."""


@dataclass(slots=True)
class Deletion:
    """Deletes objects in the folder of a table, and counts them.

    `folder` is its location in S3. A dry run counts and lists the objects only. Raises DeadlineExceeded when
    `should_continue` returns false.
    """

    s3: S3Client
    folder: S3Address
    dry_run: bool = False
    should_continue: Callable[[], bool] = lambda: True
    files: int = 0
    bytes: int = 0
    outside: int = 0
    """Objects outside the folder, for example imported files. They are not deleted."""
    paths: list[str] = field(default_factory=list)
    """The objects that a dry run would delete."""

    def delete(self, files: Iterable[File]) -> None:
        """Delete objects; missing ones are counted too. Raises ClientError, DeadlineExceeded."""
        remaining = iter(files)
        while batch := list(islice(remaining, _BATCH_SIZE)):
            if not self.should_continue():
                raise DeadlineExceeded
            inside = [file for file in batch if self._is_inside(file.path)]
            self.outside += len(batch) - len(inside)
            if self.dry_run:
                self.paths += [file.path for file in inside]
            elif inside:
                self._delete([{"Key": S3Address.parse(file.path).key} for file in inside])
            self.files += len(inside)
            self.bytes += sum(file.size for file in inside)

    def _is_inside(self, path: str) -> bool:
        try:
            address = S3Address.parse(path)
        except ValueError:
            return False
        return address.bucket == self.folder.bucket and address.key.startswith(f"{self.folder.key}/")

    def _delete(self, keys: list[ObjectIdentifierTypeDef]) -> None:
        answer = self.s3.delete_objects(Bucket=self.folder.bucket, Delete={"Objects": keys, "Quiet": True})
        for error in answer.get("Errors", []):
            response = {"Error": {"Code": error.get("Code", ""), "Message": error.get("Message", "")}}
            raise ClientError(response, "DeleteObjects")  # type: ignore[arg-type]
