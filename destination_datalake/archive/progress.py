"""Store the progress of a replay in an object beside the archive, so that a killed replay resumes.

All writes are conditional. A new replay claims the object. A replay that is still running then finds the object
changed, and stops; the new one finds its commits in the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from destination_datalake.archive.plan import Step, StepKind
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import is_changed, put
from destination_datalake.errors import ConnectorError, Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from destination_datalake.aws.access import AwsAccess


class CompletedSyncSteps(msgspec.Struct, omit_defaults=True):
    """The completed steps of one sync."""

    begun: bool = False
    batches: set[int] = msgspec.field(default_factory=set)
    ended: bool = False


class CompletedSteps(msgspec.Struct, omit_defaults=True):
    """The completed steps of a replay. `started`: when its table was empty, in seconds since 1970-01-01 UTC."""

    run: str
    started: float
    syncs: dict[str, CompletedSyncSteps] = msgspec.field(default_factory=dict)
    state: Literal["replaying", "taking over", "complete"] = "replaying"

    def add(self, steps: Iterable[Step]) -> None:
        """Record completed steps."""
        for step in steps:
            sync = self.syncs.setdefault(step.sync, CompletedSyncSteps())
            match step.kind:
                case StepKind.BEGIN:
                    sync.begun = True
                case StepKind.BATCH:
                    sync.batches.add(step.batch)
                case StepKind.END:
                    sync.ended = True

    def has(self, step: Step) -> bool:
        """Return whether a step is completed."""
        sync = self.syncs.get(step.sync, CompletedSyncSteps())
        match step.kind:
            case StepKind.BEGIN:
                return sync.begun
            case StepKind.BATCH:
                return step.batch in sync.batches
            case StepKind.END:
                return sync.ended


class ReplayProgress:
    """The progress object at `uri`, with the ETag that this replay last saw."""

    def __init__(self, uri: str, access: AwsAccess) -> None:
        self._uri = uri
        self._s3 = access.client("s3")
        self._etag: str | None = None

    def claim(self, run: str, now: float) -> CompletedSteps:
        """Claim the object for this run and return the completed steps of earlier runs. Raises ConnectorError."""
        done = CompletedSteps(run, now)
        try:
            # Write first, read second: without permission to list the folder, S3 denies a read of a missing object.
            self._etag = put(self._s3, self._uri, msgspec.json.encode(done), if_none_match=True)
        except self._s3.exceptions.ClientError as error:
            if not is_changed(error):
                raise
            done = self._read()
            done.run = run
            self.save(done)
        return done

    def save(self, done: CompletedSteps) -> None:
        """Write the completed steps. Raises ConnectorError if another replay has claimed the object."""
        content = msgspec.json.encode(done)
        try:
            if self._etag is None:
                self._etag = put(self._s3, self._uri, content, if_none_match=True)
            else:
                self._etag = put(self._s3, self._uri, content, if_match=self._etag)
        except self._s3.exceptions.ClientError as error:
            if is_changed(error):
                raise _displaced() from error
            raise

    def require(self, run: str) -> None:
        """Raise ConnectorError if another replay has claimed the object."""
        if self._read().run != run:
            raise _displaced()

    def _read(self) -> CompletedSteps:
        address = S3Address.parse(self._uri)
        answer = self._s3.get_object(Bucket=address.bucket, Key=address.key)
        self._etag = answer["ETag"]
        return msgspec.json.decode(answer["Body"].read(), type=CompletedSteps)


def _displaced() -> ConnectorError:
    message = (
        "This replay was stopped: a newer replay into the same table, or `delete-rows`, has displaced it. After "
        "`delete-rows`, run the replay again."
    )
    return ConnectorError(Failure(message, message, "config_error"))
