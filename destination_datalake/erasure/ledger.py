"""Store the ledger of an erasure request in S3: the request, the salted hashes of its IDs, and its progress.

The ledger contains no IDs. An object's URI can contain an ID, for example in a folder name such as `user_id=42/`. The
ledger therefore identifies objects by salted hashes of their URIs, or by URIs in which the IDs are masked.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from destination_datalake.archive.objects import ConditionalObject
from destination_datalake.aws.objects import Upload, get, listed, put, rollback_on_error
from destination_datalake.erasure.model import now
from destination_datalake.files.ids import new_salt
from destination_datalake.files.suppression import (
    DELETIONS_FOLDER,
    HASHES,
    REQUEST,
    REQUEST_DECODER,
    ErasedColumn,
    RequestRecord,
    hashes_name,
    requests,
)

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.erasure.ids import IdsFile

_HASH_BYTES = 32
_TEXT = pa.string()


@dataclass(slots=True)
class Ledger:
    """The ledger of one erasure request, in a folder in S3.

    An attempt first writes the request and the hashes of its IDs (`begin`). It marks objects before it deletes them
    (`mark_for_deletion`), and finally marks the request as finished (`finish`). If an attempt is killed, the next
    attempt at the same request continues with the same ledger.
    """

    record: RequestRecord
    folder: str
    access: AwsAccess
    is_resumed: bool = False
    """Whether an earlier attempt at this request has begun, and may have erased rows."""

    _marked: set[bytes] = field(default_factory=set)
    _unfinished: Sequence[Ledger] = ()
    """The ledgers of other unfinished requests. `are_marked` also considers the objects that these requests have marked
    for deletion."""

    @classmethod
    def open(cls, column: str, target: Sequence[str], file: IdsFile, config: Config, access: AwsAccess) -> Self:
        """Return the ledger of an unfinished request with the same column, target and IDs.

        If S3 contains no such request, returns a new ledger, which `begin` writes to S3. Raises AWS errors, and
        ConfigError if a request in S3 is invalid.
        """
        root = config.uri(DELETIONS_FOLDER)
        records = [record for record in requests(root, access.client("s3")) if record.finished is None]
        ledgers = [cls(record, f"{root}/{record.id}", access) for record in records]
        for ledger in ledgers:
            ledger._read_marked()
        for ledger in ledgers:
            is_same_target = (ledger.record.column, ledger.record.target) == (column, tuple(target))
            if is_same_target and _checksum(file, ledger.salt) == (ledger.record.check, ledger.record.ids):
                ledger.is_resumed = True
                ledger._unfinished = [unfinished for unfinished in ledgers if unfinished is not ledger]
                return ledger
        salt = new_salt()
        checksum, count = _checksum(file, salt)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        record = RequestRecord(name, column, tuple(target), count, base64.b64encode(salt).decode(), checksum, now())
        return cls(record, f"{root}/{name}", access, _unfinished=ledgers)

    @property
    def salt(self) -> bytes:
        """Return the salt with which the ledger computes all of its hashes."""
        return base64.b64decode(self.record.salt)

    def begin(self, types: Mapping[str, pa.DataType], file: IdsFile, *, suppress: bool) -> None:
        """Write the request and the hashes of its IDs to S3.

        `types` maps the name of each table that contains the column to the column's type in this table. From now on,
        replays omit archived records with these IDs. With `suppress`, syncs that start later reject new records with
        these IDs.
        """
        for type_ in {*types.values()}:
            self._write_hashes(file, type_)
        tables = {name: ErasedColumn(self.record.column, str(type_)) for name, type_ in types.items()}
        self._update(
            lambda record: replace(
                record, suppress=suppress or record.suppress, tables={**record.tables, **tables}, finished=None
            )
        )

    def finish(self) -> None:
        """Mark the request as finished in S3. From now on, no attempt resumes the request."""
        finished = now()
        self._update(lambda record: replace(record, finished=finished))

    def mark_for_deletion(self, uris: Sequence[str]) -> None:
        """Record in S3 that the erasure will delete these objects. Call this method before you delete them."""
        if hashes := {self._hash(uri) for uri in uris} - self._marked:
            self._marked |= hashes
            self._put_new("doomed", b"".join(sorted(hashes)), "bin")

    def are_marked(self, uris: Sequence[str]) -> list[bool]:
        """Return whether this or another unfinished request has marked each of these objects for deletion."""
        ledgers = [ledger for ledger in (self, *self._unfinished) if ledger._marked]
        return [any(ledger._hash(uri) in ledger._marked for ledger in ledgers) for uri in uris]

    def append(self, kind: str, lines: Iterable[Any]) -> None:
        """Store values as JSON Lines in S3, under the name `kind`. A later attempt can read the values with `lines`."""
        if content := b"".join(msgspec.json.encode(line) + b"\n" for line in lines):
            self._put_new(kind, content, "jsonl")

    def lines(self, kind: str) -> Iterator[Any]:
        """Yield the values that attempts at this request have stored with `append` under the name `kind`."""
        for content in self._contents(kind):
            yield from map(msgspec.json.decode, content.splitlines())  # noqa: TID251 (without a type)

    def _hash(self, uri: str) -> bytes:
        return hmac.digest(self.salt, b"u" + uri.encode(), "sha256")

    def _read_marked(self) -> None:
        for content in self._contents("doomed"):
            self._marked |= {content[start : start + _HASH_BYTES] for start in range(0, len(content), _HASH_BYTES)}

    def _contents(self, kind: str) -> Iterator[bytes]:
        s3 = self.access.client("s3")
        return (get(s3, uri) for uri, _ in listed(s3, f"{self.folder}/{kind}"))

    def _put_new(self, kind: str, content: bytes, ending: str) -> None:
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.{ending}"
        put(self.access.client("s3"), f"{self.folder}/{kind}/{name}", content)

    def _update(self, change: Callable[[RequestRecord], RequestRecord]) -> None:
        """Apply `change` to the request in S3, which another attempt may have changed, and to `record`."""

        def changed(content: bytes) -> bytes:
            self.record = change(REQUEST_DECODER.decode(content))
            return _encode(self.record)

        stored = ConditionalObject(f"{self.folder}/{REQUEST}", self.access.client("s3"))
        self.record = change(self.record)
        # Only the first attempt at a request creates the object.
        if not stored.put(_encode(self.record)):
            stored.update(changed)

    def _write_hashes(self, file: IdsFile, type_: pa.DataType) -> None:
        uri = f"{self.folder}/{HASHES}/{hashes_name(str(type_))}"
        upload = Upload(self.access.client("s3"), uri, deferred=False)
        with rollback_on_error(upload.abort):
            for digest in file.digests(type_, self.record.column, self.salt):
                upload.write(digest)
            upload.close()


def _encode(record: RequestRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record))


def _checksum(file: IdsFile, salt: bytes) -> tuple[str, int]:
    """Return a checksum of the IDs in a file, and the number of IDs.

    The checksum is the sum of the salted hashes of the IDs as strings, modulo 2^256, so that the order of the IDs does
    not matter.
    """
    total = count = 0
    for digest in file.digests(_TEXT, "", salt):
        total += int.from_bytes(digest, "big")
        count += 1
    return f"{total % 2**256:064x}", count
