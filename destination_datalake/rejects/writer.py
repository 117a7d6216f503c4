"""Writing the rejects of one unit to S3, on the executor, before the unit's result is returned.

The uploads stay incomplete until the driver completes those of the attempt that it commits. The rejects of other
attempts are never visible.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from destination_datalake.aws.objects import GzipUpload, PendingUpload, Upload, delete_uncommitted, naming_object
from destination_datalake.rejects.ledger import RejectCounts, RejectFile, RejectLocation
from destination_datalake.rejects.line import RejectFormatter, RejectLine, RowKey

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.records.decoded import Decoded

BUFFER_BYTES = 1024 * 1024
"""The amount of text to buffer before compression. It limits memory for any number of rejects."""


class RejectWriter:
    """Writes an object per reason, and none without rejects."""

    def __init__(self, formatter: RejectFormatter, location: RejectLocation, attempt: str, s3: S3Client) -> None:
        """Create a writer without sending requests. `attempt` is the name of the objects, unique to this attempt."""
        self._formatter = formatter
        self._location = location
        self._attempt = attempt
        self._s3 = s3
        self._open: dict[str, _File] = {}
        self._closed: list[RejectFile] = []
        self._rows = 0
        self._refused = 0
        self._affected = 0
        self._reasons: Counter[tuple[str | None, str]] = Counter()

    def write(self, decoded: Decoded, row_ids: Any) -> None:
        """Append the rejects of decoded records. `row_ids` has a string per row. Raises ObjectFailed."""
        self._rows += decoded.rows
        self._refused += len(decoded.rejected)
        self._affected += len(decoded.rejected)
        for refused in decoded.rejected:
            self._reasons[None, refused.reason] += 1
            self._append(self._formatter.record_line(refused.line, refused.reason, refused.message))
        for changed in decoded.changed:
            changes = [change for change in changed.changes if not change.had_no_value]
            if not changes:
                continue
            self._affected += 1
            self._reasons.update((self._formatter.column_of(change), change.reason or "") for change in changes)
            row = RowKey(row_ids[changed.row].as_py(), decoded.extracted_at[changed.row].value)
            for line in self._formatter.value_lines(changed.line, changes, row):
                self._append(line)

    def close(self) -> list[RejectFile]:
        """Upload the rest. Return the objects, which are durable but not visible. Raises ObjectFailed."""
        for reason in [*self._open]:
            upload = self._open[reason].close()
            del self._open[reason]
            uri = self._location.uri(reason, self._attempt)
            self._closed.append(RejectFile(self._location.partition(reason), uri, upload))
        return self._closed

    def abort(self) -> None:
        """Abort the uploads, and remove the attempt's objects from S3."""
        with ExitStack() as steps:
            steps.callback(delete_uncommitted, self._closed, self._s3)
            for file in self._open.values():
                steps.callback(file.abort)

    def counts(self) -> RejectCounts:
        """Return the counts so far."""
        return RejectCounts(self._rows + self._refused, self._refused, self._affected, dict(self._reasons))

    def _append(self, line: RejectLine) -> None:
        file = self._open.get(line.reason)
        if file is None:
            file = self._open[line.reason] = _File(self._s3, self._location.uri(line.reason, self._attempt))
        file.append(line)


class _File:
    """An object of gzipped JSON lines."""

    def __init__(self, s3: S3Client, uri: str) -> None:
        self._upload = Upload(s3, uri, deferred=True)
        self._gzip = GzipUpload(self._upload)
        self._pending = bytearray()
        self._encoder = msgspec.json.Encoder()

    def append(self, line: RejectLine) -> None:
        """Append a line."""
        self._encoder.encode_into(line, self._pending, -1)
        self._pending += b"\n"
        if len(self._pending) >= BUFFER_BYTES:
            self._compress()

    def close(self) -> PendingUpload:
        """Upload the rest."""
        self._compress()
        with self._named():
            self._gzip.close()
        pending = self._upload.pending_upload
        assert isinstance(pending, PendingUpload)
        return pending

    def abort(self) -> None:
        """Abort the upload."""
        self._upload.abort()

    def _compress(self) -> None:
        with self._named():
            self._gzip.write(self._pending)
        self._pending.clear()

    def _named(self) -> AbstractContextManager[None]:
        return naming_object("write rejects to", self._upload.uri)
