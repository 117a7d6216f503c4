"""What an executor is told and what it answers: small values that travel, never records."""

from __future__ import annotations

from dataclasses import dataclass

from destination_datalake.aws.access import AwsAccess
from destination_datalake.errors import Failure
from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.location import RejectFile, RejectLocation


@dataclass(frozen=True, slots=True)
class EncodeUnit:
    """Segments of one stream, to be read one after the other into as few files as `FilePlan.target_bytes` allows.

    A segment is a path on the executors' local disk, or an S3 URI when they live on other machines. `name` begins the
    names of the files; those of data also tell one try from another. `rejects` is where what cannot be kept as it was
    goes.
    """

    stream: StreamId
    name: str
    segments: tuple[str, ...]
    plan: FilePlan
    rejects: RejectLocation


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """What one Spark task does: units, of several streams where each is small."""

    units: tuple[EncodeUnit, ...]
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class Encoded:
    """A unit that was encoded: every record of its segments is in one of `files` or, refused, among the rejects.

    `rejects` are durable already; `counts` counts them. `undeclared` are the places of fields that its first records
    have and the stream's columns have not.
    """

    stream: StreamId
    files: tuple[DataFile, ...]
    counts: RejectCounts
    rejects: tuple[RejectFile, ...]
    undeclared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotEncoded:
    """A unit that could not be encoded; nothing of it is left in S3."""

    stream: StreamId
    failure: Failure


UnitResult = Encoded | NotEncoded
