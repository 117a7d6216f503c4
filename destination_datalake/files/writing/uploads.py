"""Uploads of files whose encoding has ended, several at a time: small ones mostly wait for S3's answers."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import delete_uncommitted
from destination_datalake.files.plan import DataFile
from destination_datalake.files.writing.open_file import OpenFile

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

THREADS = 16
"""Half of the connections that a client keeps: parts of open files are sent beside them."""

WAITING_BYTES = 32 * 1024 * 1024
"""The most bytes of encoded files that wait, besides those of the last file."""


class Uploads:
    """Uploads files in the background, and keeps what became of them in the order in which they were added."""

    def __init__(self, s3: S3Client) -> None:
        """Start no thread yet."""
        self._s3 = s3
        self._pool = ThreadPoolExecutor(THREADS, "files")
        self._running: deque[tuple[OpenFile, Future[DataFile], int]] = deque()
        self._running_bytes = 0
        self._finished: list[DataFile] = []

    def add(self, file: OpenFile) -> None:
        """Upload the rest of a file that has ended. Waits while too much is under way; raises what has failed."""
        waiting = file.buffered_bytes
        self._running.append((file, self._pool.submit(file.upload), waiting))
        self._running_bytes += waiting
        while self._running_bytes - waiting > WAITING_BYTES or len(self._running) > 2 * THREADS:
            self._collect()

    def finish(self) -> list[DataFile]:
        """Return all files when they are uploaded. Raises what one of them failed with."""
        while self._running:
            self._collect()
        self._pool.shutdown()
        return self._finished

    def abort(self) -> None:
        """Withdraw all files."""
        self._pool.shutdown(cancel_futures=True)
        with ExitStack() as steps:
            for file, upload, _ in self._running:
                if upload.cancelled() or upload.exception() is not None:
                    steps.callback(file.abort)
                else:
                    self._finished.append(upload.result())
            steps.callback(delete_uncommitted, self._finished, self._s3)

    def _collect(self) -> None:
        """Wait for the first file; one that failed stays, to be aborted."""
        _, upload, waiting = self._running[0]
        self._finished.append(upload.result())
        self._running.popleft()
        self._running_bytes -= waiting
