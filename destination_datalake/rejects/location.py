"""Where a stream's rejects are written: `_errors/{reason}/{stream}/dt=YYYY-MM-DD/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from destination_datalake.aws.objects import PendingUpload

if TYPE_CHECKING:
    pass

REJECTS_FOLDER = "_errors"
REJECTS_TABLE = "airbyte_rejects"
"""The Glue table over that folder, in the database for streams without a namespace."""


class Partition(NamedTuple):
    """What the objects of one folder have in common: the values of the table's partition keys."""

    reason: str
    stream: str
    dt: str


@dataclass(frozen=True, slots=True)
class RejectLocation:
    """Where the rejects of one stream and sync are written.

    `root` is the S3 URI of the folder for all rejects, without a slash at the end. `run` names the sync, `day` is the
    day on which it began, YYYY-MM-DD in UTC. Keys have the name of the stream's table, which is safe in a key.
    """

    root: str
    run: str
    day: str
    database: str
    table: str

    def partition(self, reason: str) -> Partition:
        """Return the partition for this reason."""
        return Partition(reason, f"{self.database}.{self.table}", self.day)

    def uri(self, reason: str, attempt: str) -> str:
        """Return the URI of the object for the rejects of this reason that an attempt at a unit writes."""
        partition = self.partition(reason)
        return f"{self.root}/{reason}/{partition.stream}/dt={partition.dt}/{attempt}.jsonl.gz"


@dataclass(frozen=True, slots=True)
class RejectFile:
    """An object: gzipped JSON lines, in the order of the records. Nobody sees it before its upload is published."""

    partition: Partition
    uri: str
    pending_upload: PendingUpload

    @property
    def folder(self) -> str:
        """The S3 URI of the partition's folder, with a slash at the end."""
        return f"{self.uri.rpartition('/')[0]}/"
