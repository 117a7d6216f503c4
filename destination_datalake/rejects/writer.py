"""The objects that a unit's rejects are written to, by the executor, before the unit is answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.upload import GzipUpload, Upload
from destination_datalake.aws.withdrawal import withdraw_all
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.line import RejectFormatter, RejectLine, RowKey
from destination_datalake.rejects.location import RejectFile, RejectLocation

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.records.block import Decoded

BUFFER_BYTES = 1024 * 1024
"""So much text is gathered before it is compressed: memory does not grow with what is rejected."""


class RejectsNotWritten(Exception):
    """An object for rejects could not be written; its cause says why."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.uri = uri


class RejectWriter:
    """The rejects of one unit: an object per reason, none where nothing is rejected."""

    def __init__(self, lines: RejectFormatter, place: RejectLocation, unit: str, s3: S3Client) -> None:
        self._lines = lines
        self._place = place
        self._unit = unit
        self._s3 = s3
        self._open: dict[str, _File] = {}
        self._durable: list[RejectFile] = []
        self._rows = 0
        self._refused = 0
        self._affected = 0
        self._reasons: Counter[tuple[str | None, str]] = Counter()

    def write(self, decoded: Decoded, row_ids: Any) -> None:
        """Append what was rejected of these records, whose rows have these ids. Raises RejectsNotWritten."""
        self._rows += decoded.rows
        self._refused += len(decoded.refused)
        self._affected += len(decoded.refused) + len(decoded.changed)
        for refused in decoded.refused:
            self._reasons[None, refused.reason] += 1
            self._append(self._lines.record_line(refused.line, refused.reason, refused.message))
        for changed in decoded.changed:
            self._reasons.update((self._lines.column_of(each), each.reason or "") for each in changed.changes)
            row = RowKey(row_ids[changed.row].as_py(), decoded.extracted_at[changed.row].value)
            for line in self._lines.value_lines(changed.line, changed.changes, row):
                self._append(line)

    def close(self) -> list[RejectFile]:
        """Make the objects durable and return them. Raises RejectsNotWritten."""
        for reason in [*self._open]:
            self._open[reason].close()
            del self._open[reason]
            self._durable.append(RejectFile(self._place.partition(reason), self._place.uri(reason, self._unit)))
        return self._durable

    def abort(self) -> None:
        """Leave nothing of the unit in S3."""
        with ExitStack() as steps:
            steps.callback(withdraw_all, self._durable, self._s3)
            for file in self._open.values():
                steps.callback(file.abort)

    def counts(self) -> RejectCounts:
        """What was counted."""
        return RejectCounts(self._rows + self._refused, self._refused, self._affected, dict(self._reasons))

    def _append(self, line: RejectLine) -> None:
        file = self._open.get(line.reason)
        if file is None:
            file = self._open[line.reason] = _File(self._s3, self._place.uri(line.reason, self._unit))
        file.append(line)


class _File:
    """One object of gzipped JSON lines."""

    def __init__(self, s3: S3Client, uri: str) -> None:
        self._uri = uri
        where = S3Address.parse(uri)
        self._upload = Upload(s3, where.bucket, where.key, hidden=False)
        self._gzip = GzipUpload(self._upload)
        self._pending = bytearray()
        self._encoder = msgspec.json.Encoder()

    def append(self, line: RejectLine) -> None:
        """Add a line."""
        self._encoder.encode_into(line, self._pending, -1)
        self._pending += b"\n"
        if len(self._pending) >= BUFFER_BYTES:
            self._compress()

    def close(self) -> None:
        """Finish the object."""
        self._compress()
        with self._naming_it():
            self._gzip.close()

    def abort(self) -> None:
        """Leave nothing."""
        self._upload.abort()

    def _compress(self) -> None:
        with self._naming_it():
            self._gzip.write(self._pending)
        self._pending.clear()

    @contextmanager
    def _naming_it(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise RejectsNotWritten(self._uri) from error
