"""Where a stream's rejects go: `_errors/{reason}/{stream}/dt=YYYY-MM-DD/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from destination_datalake.aws.address import S3Address

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REJECTS_FOLDER = "_errors"
REJECTS_TABLE = "airbyte_rejects"
"""The table over that folder, in the database for streams without a namespace."""


class Partition(NamedTuple):
    """What the objects of one folder have in common, as the catalog's partition keys have it."""

    reason: str
    stream: str
    dt: str


@dataclass(frozen=True, slots=True)
class RejectLocation:
    """Where the rejects of one stream and sync go.

    `root` is the S3 URI of the folder for all rejects, without a slash at the end. `run` names the sync, `day` is the
    day on which it began, YYYY-MM-DD in UTC. The stream goes by its table, whose names are safe in a key.
    """

    root: str
    run: str
    day: str
    database: str
    table: str

    def partition(self, reason: str) -> Partition:
        """The folder for this reason."""
        return Partition(reason, f"{self.database}.{self.table}", self.day)

    def uri(self, reason: str, unit: str) -> str:
        """The object for one unit's rejects of this reason: always the same, so that a unit done again overwrites."""
        partition = self.partition(reason)
        return f"{self.root}/{reason}/{partition.stream}/dt={partition.dt}/{unit}.jsonl.gz"


@dataclass(frozen=True, slots=True)
class RejectFile:
    """An object that was written: gzipped JSON lines, in the order of the records."""

    partition: Partition
    uri: str

    @property
    def folder(self) -> str:
        """The S3 URI of the partition's folder, with the slash at its end."""
        return f"{self.uri.rpartition('/')[0]}/"

    def withdraw(self, s3: S3Client) -> None:
        """Remove the object. Harmless when it is gone."""
        where = S3Address.parse(self.uri)
        s3.delete_object(Bucket=where.bucket, Key=where.key)
