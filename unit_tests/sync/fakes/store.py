"""A store of objects in memory, for segments of executors on other machines."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import IO, Any

from botocore.exceptions import ClientError

from destination_datalake.buffer.staging import RemoteStaging
from destination_datalake.files.segments import SegmentGone, StagedObject
from destination_datalake.sync.thread_pool import ThreadPool
from unit_tests.sync.fakes.schedule import Journal, Schedule

_STREAM = re.compile(rb'"stream":"([a-z]+)"')


class Store:
    """What the connector needs of S3. Uploads wait for their turn, and may fail."""

    def __init__(self, schedule: Schedule, journal: Journal) -> None:
        self.objects: dict[str, bytes] = {}
        self._schedule = schedule
        self._journal = journal
        self._lock = threading.Lock()
        self._vanished: set[str] = set()
        """Segments that a lifecycle rule has deleted while they waited."""

    def client(self, _service: str) -> Store:
        """Return the store itself, as access to it."""
        return self

    def put_object(self, Bucket: str, Key: str, Body: IO[bytes]) -> dict[str, str]:  # noqa: N803
        """Store an object."""
        fault = self._schedule.wait_for_turn(
            f"upload {Key}", "upload fails", "upload's answer is lost", "segment vanishes"
        )
        content = Body.read()
        with self._lock:
            if fault is not None:
                match = _STREAM.search(content)
                assert match is not None
                self._journal.faulty.add(match[1].decode())
            if fault == "segment vanishes":
                self._vanished.add(f"s3://{Bucket}/{Key}")
            elif fault != "upload fails":
                self.objects[f"{Bucket}/{Key}"] = content
        if fault not in (None, "segment vanishes"):
            raise ClientError({"Error": {"Code": "SlowDown", "Message": "Reduce your request rate."}}, "PutObject")
        return {"ETag": Key}

    def delete_object(self, Bucket: str, Key: str) -> None:  # noqa: N803
        """Delete an object, if it is there."""
        self.objects.pop(f"{Bucket}/{Key}", None)

    def get_paginator(self, _operation: str) -> Store:
        """Return the pages of a listing."""
        return self

    def paginate(self, **_: str) -> Iterator[dict[str, Any]]:
        """No job has left anything."""
        return iter([])

    def read(self, segment: StagedObject) -> bytes:
        """Return a segment's content, as executors do. Raises SegmentGone."""
        if segment.uri in self._vanished:
            raise SegmentGone(segment.uri)
        content = self.objects.get(segment.uri.removeprefix("s3://"))
        if content is None:
            self._journal.violations.append(f"{segment.uri} was deleted before it was read")
        return content or b""

    def staging(self, pool: ThreadPool) -> RemoteStaging:
        """Return a staging in this store."""
        access: Any = self
        return RemoteStaging("s3://lake/_staging", "0123456789ab", access, pool, close_seconds=60)
