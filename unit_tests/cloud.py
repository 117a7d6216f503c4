"""An AWS account inside the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from emulated_aws.extension import install
from moto import mock_aws
from moto.core.botocore_stubber import MockRawResponse

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.files.segments import LocalFile, StagedSegment
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.tables.glue.catalog import GlueTableCatalog

BUCKET = "lake"

install()

_registered: list[ExitStack] = []
"""For each cloud that there is, the end of what tests have registered with clients."""


@dataclass(frozen=True)
class Cloud:
    """The account, with one bucket in it."""

    access: AwsAccess

    def objects(self) -> dict[str, bytes]:
        """The visible objects' contents by key."""
        s3 = self.access.client("s3")
        keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
        return {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}

    def arrow(self, key: str) -> pa.BufferReader:
        """An object's content, for Arrow to read."""
        return pa.BufferReader(self.objects()[key])

    @contextmanager
    def refusing(self, *operations: str, status: int = 403, code: str = "AccessDenied") -> Iterator[None]:
        """As long as this lasts, S3 answers these operations ("UploadPart") with AccessDenied, or another error."""
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()

        def refused(request: AWSPreparedRequest, **_: object) -> Any:
            return AWSResponse(str(request.url), status, HTTPHeaders(), MockRawResponse(body))

        events = self.access.client("s3").meta.events
        for operation in operations:
            events.register_first(f"before-send.s3.{operation}", refused)
        try:
            yield
        finally:
            for operation in operations:
                events.unregister(f"before-send.s3.{operation}", refused)

    def unfinished_uploads(self) -> list[str]:
        """The keys of multipart uploads that were neither completed nor aborted."""
        uploads = self.access.client("s3").list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return [upload["Key"] for upload in uploads]


@contextmanager
def cloud() -> Iterator[Cloud]:
    """Lend an account, empty but for the bucket."""
    access = AwsAccess("us-east-1", AccessKeys("AKIAIOSFODNN7EXAMPLE", "not-a-secret"))
    with mock_aws(), ExitStack() as registered:
        _registered.append(registered)
        access.client("s3").create_bucket(Bucket=BUCKET)
        try:
            yield Cloud(access)
        finally:
            _registered.remove(registered)


def on_disk(path: Path) -> StagedSegment:
    """A segment on the disk of executors that are on this machine."""
    return StagedSegment(LocalFile(str(path)), path.stat().st_size if path.exists() else 1)


def ungoverned(access: AwsAccess) -> GlueTableCatalog:
    """The databases of a sync whose options leave Lake Formation alone."""
    return GlueTableCatalog(access, Governance(Policy(f"arn:aws:s3:::{BUCKET}"), access))


def another_client() -> AwsAccess:
    """Access to the account through clients of its own, for `before`."""
    return AwsAccess("us-east-1", AccessKeys(uuid4().hex, "not-a-secret"))


@contextmanager
def during(access: AwsAccess, event: str, act: Callable[..., Any]) -> Iterator[None]:
    """As long as this lasts, `act` is called at an event of these clients ("before-call.s3.GetObject")."""
    service: Any = event.split(".")[1]
    events = access.client(service).meta.events
    events.register(event, act)
    try:
        yield
    finally:
        events.unregister(event, act)


def before(access: AwsAccess, service: Any, operation: str, act: Callable[[int], object]) -> None:
    """Call `act` with 1, 2, 3, … before each call of an operation through these clients, until the cloud is gone.

    Clients outlive it: those of equal accesses are the same in all tests.
    """
    times = iter(range(1, 1000))

    def notice(**_: object) -> None:
        act(next(times))

    events, event = access.client(service).meta.events, f"before-call.{service}.{operation}"
    events.register(event, notice)
    for registered in _registered[-1:]:
        registered.callback(events.unregister, event, notice)


def close_body(response: Any) -> None:
    """Close the connection of a response that nobody will read, as the end of a killed process does."""
    body = response.get("Body")
    if body is not None:
        body.close()


def at_the_next_update(access: AwsAccess, act: Callable[[], object], *, response_lost: bool = False) -> None:
    """Call `act` just before these clients' next update of a Glue table; or after it, and lose the response."""
    at_the_next(access, "glue.UpdateTable", act, response_lost=response_lost)


def at_the_next(access: AwsAccess, call: str, act: Callable[[], object], *, response_lost: bool = False) -> None:
    """Call `act` just before these clients' next call ("s3.PutObject"); or after it, and lose the response."""
    service: Any = call.partition(".")[0]
    events: Any = access.client(service).meta.events
    event = f"needs-retry.{call}" if response_lost else f"before-send.{call}"

    def once(**_: Any) -> float | None:
        events.unregister(event, once)
        act()
        return 0 if response_lost else None

    events.register_first(event, once)
