"""Deletion of a table's objects. The last guard: nothing outside the table's own folder is ever deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from destination_datalake.aws.address import S3Address
from destination_datalake.tables.iceberg.maintenance.removal.paths import File

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

_AT_ONCE = 1000
"""S3 API: DeleteObjects."""


class Stopped(Exception):
    """There is no time left. What was not done is left to the next run."""


@dataclass(slots=True)
class Deletion:
    """Deletes objects in the folder of a table, and counts them.

    `folder` is its location in S3. A rehearsal (`dry_run`) counts and lists what would be deleted. `goes_on` says
    whether there is time left; Stopped is raised if not.
    """

    s3: S3Client
    folder: S3Address
    dry_run: bool
    goes_on: Callable[[], bool]
    files: int = 0
    bytes: int = 0
    outside: int = 0
    """Objects that belong elsewhere, as files that were added to the table where they were. They stay."""
    paths: list[str] = field(default_factory=list)
    """The objects that a rehearsal would delete."""

    def delete(self, files: Iterable[File]) -> None:
        """Delete objects; those that do not exist any more are counted too. Raises ClientError, Stopped."""
        rest = iter(files)
        while batch := list(islice(rest, _AT_ONCE)):
            if not self.goes_on():
                raise Stopped
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
