"""How far a replay is: an object beside the archive, so that one that was killed goes on where it was.

The object is changed by conditional writes alone. A replay that begins claims it; one that is still running then finds
it changed, and stops. What it has committed before is in the table, and found there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from destination_datalake.archive.plan import Kind, Step
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import is_changed, put
from destination_datalake.errors import ConnectorError, Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from destination_datalake.aws.access import AwsAccess


class CompletedSyncSteps(msgspec.Struct, omit_defaults=True):
    """What a replay has done of one sync."""

    begun: bool = False
    batches: set[int] = msgspec.field(default_factory=set)
    ended: bool = False


class CompletedSteps(msgspec.Struct, omit_defaults=True):
    """What a replay has done. `started` is when it began with an empty table, in seconds since 1970-01-01 UTC."""

    run: str
    started: float
    syncs: dict[str, CompletedSyncSteps] = msgspec.field(default_factory=dict)
    state: Literal["replaying", "taking over", "complete"] = "replaying"

    def add(self, steps: Iterable[Step]) -> None:
        """Note that steps are done."""
        for step in steps:
            sync = self.syncs.setdefault(step.sync, CompletedSyncSteps())
            match step.kind:
                case Kind.BEGIN:
                    sync.begun = True
                case Kind.BATCH:
                    sync.batches.add(step.batch)
                case Kind.END:
                    sync.ended = True

    def has(self, step: Step) -> bool:
        """Whether a step is done."""
        sync = self.syncs.get(step.sync, CompletedSyncSteps())
        match step.kind:
            case Kind.BEGIN:
                return sync.begun
            case Kind.BATCH:
                return step.batch in sync.batches
            case Kind.END:
                return sync.ended


class ReplayProgress:
    """The object at `uri`, as this replay knows it."""

    def __init__(self, uri: str, access: AwsAccess) -> None:
        self._uri = uri
        self._s3 = access.client("s3")
        self._etag: str | None = None

    def claim(self, run: str, now: float) -> CompletedSteps:
        """Return what former replays have done, nothing without any, and make it this one's. Raises ConnectorError."""
        done = CompletedSteps(run, now)
        try:
            # Reading comes second: that there is no object S3 tells only who may list the folder.
            self._etag = put(self._s3, self._uri, msgspec.json.encode(done), if_none_match=True)
        except self._s3.exceptions.ClientError as error:
            if not is_changed(error):
                raise
            done = self._read()
            done.run = run
            self.save(done)
        return done

    def save(self, done: CompletedSteps) -> None:
        """Write what is done. Raises ConnectorError if another replay has claimed it."""
        content = msgspec.json.encode(done)
        try:
            if self._etag is None:
                self._etag = put(self._s3, self._uri, content, if_none_match=True)
            else:
                self._etag = put(self._s3, self._uri, content, if_match=self._etag)
        except self._s3.exceptions.ClientError as error:
            if is_changed(error):
                raise _taken_over() from error
            raise

    def require(self, run: str) -> None:
        """Raise ConnectorError if another replay has claimed it."""
        if self._read().run != run:
            raise _taken_over()

    def _read(self) -> CompletedSteps:
        address = S3Address.parse(self._uri)
        answer = self._s3.get_object(Bucket=address.bucket, Key=address.key)
        self._etag = answer["ETag"]
        return msgspec.json.decode(answer["Body"].read(), type=CompletedSteps)


def _taken_over() -> ConnectorError:
    message = (
        "Another replay into the same table has begun since this one did, or `delete-rows` has, and has taken its "
        "place. After `delete-rows`, run the replay again."
    )
    return ConnectorError(Failure(message, message, "config_error"))
