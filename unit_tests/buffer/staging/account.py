"""An account with staged segments in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from destination_datalake.aws.access import AwsAccess
from destination_datalake.buffer.staging import RemoteStaging, Segment
from destination_datalake.files.segments import StagedSegment
from destination_datalake.protocol.catalog import StreamId
from unit_tests.cloud import BUCKET

ROOT = f"s3://{BUCKET}/lake/_staging"
SYNC = "0123456789ab"
FOLDER = f"lake/_staging/{SYNC}"

_numbers = itertools.count()


class ManualPool:
    """Runs calls when it is told to, in order."""

    def __init__(self) -> None:
        self.is_eager = False
        self._waiting: list[tuple[Callable[[], StagedSegment | None], Future[StagedSegment | None]]] = []

    def submit(self, call: Callable[[], StagedSegment | None]) -> Future[StagedSegment | None]:
        future: Future[StagedSegment | None] = Future()
        self._waiting.append((call, future))
        if self.is_eager:
            self.run()
        return future

    def run(self) -> None:
        """Run all calls that wait, also those that they submit."""
        while self._waiting:
            call, future = self._waiting.pop(0)
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)


class Staged:
    """A staging for one sync, whose calls are made when the test says so."""

    def __init__(self, access: AwsAccess, directory: Path, staging: RemoteStaging | None = None) -> None:
        self.pool = ManualPool()
        self.staging = staging or RemoteStaging(ROOT, SYNC, access, self.pool)
        self.free: list[Segment] = []
        self.staging.on_free_file(self.free.append)
        self._directory = directory

    def segment(self, content: bytes = b"a\nb\n") -> Segment:
        """A sealed segment, whose upload has begun."""
        number = next(_numbers)
        path = self._directory / f"{number}.jsonl"
        path.write_bytes(content)
        segment = Segment(StreamId(None, "orders"), path, number, 2, len(content), 0.0)
        self.staging.begin(segment)
        return segment

    def close(self) -> None:
        """End the sync."""
        self.pool.run()
        self.pool.is_eager = True
        self.staging.__exit__(None, None, None)
