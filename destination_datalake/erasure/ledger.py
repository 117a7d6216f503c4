"""Store the ledger of a request in S3: the request, salted hashes of its IDs, and its progress.

The ledger identifies objects by salted hashes of their URIs, and reports mask the values of partitions: the name of a
folder such as `user_id=42/` contains an ID.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from destination_datalake.aws.objects import Upload, get, listed, put, rollback_on_error
from destination_datalake.erasure.place import now
from destination_datalake.files.ids import new_salt
from destination_datalake.files.suppression import (
    DELETIONS_FOLDER,
    HASHES,
    REQUEST,
    ErasedColumn,
    RequestRecord,
    hashes_name,
    requests,
)

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.erasure.ids import IdsFile

_HASH = 32
_TEXT = pa.string()


@dataclass(slots=True)
class Ledger:
    """The ledger of one request. All attempts share the objects marked for deletion and the objects found."""

    record: RequestRecord
    folder: str
    access: AwsAccess
    _doomed: set[bytes] = field(default_factory=set)
    _earlier: Sequence[Ledger] = ()
    """Ledgers of other unfinished requests: objects that they marked for deletion are not live either."""

    @classmethod
    def open(cls, column: str, target: Sequence[str], file: IdsFile, config: Config, access: AwsAccess) -> Self:
        """Return the ledger of an unfinished identical request, or a new one, which is not yet written."""
        root = config.uri(DELETIONS_FOLDER)
        unfinished = [each for each in requests(root, access.client("s3")) if each.finished is None]
        earlier = [cls(each, f"{root}/{each.id}", access) for each in unfinished]
        for ledger in earlier:
            ledger._read_doomed()
        for ledger in earlier:
            same = (ledger.record.column, ledger.record.target) == (column, tuple(target))
            if same and _check(file, ledger.salt) == (ledger.record.check, ledger.record.ids):
                ledger._earlier = [each for each in earlier if each is not ledger]
                return ledger
        salt = new_salt()
        check, count = _check(file, salt)
        id_ = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        record = RequestRecord(id_, column, tuple(target), count, base64.b64encode(salt).decode(), check, now())
        return cls(record, f"{root}/{id_}", access, _earlier=earlier)

    @property
    def salt(self) -> bytes:
        """Return the salt of all hashes."""
        return base64.b64decode(self.record.salt)

    def begin(self, types: Mapping[str, pa.DataType], file: IdsFile, *, suppress: bool) -> None:
        """Write the request and the hashes of its IDs. From now on replays suppress these rows; syncs with `suppress`.

        `types` maps each table with the column to the column's type.
        """
        record = self.record
        for type_ in {*types.values()}:
            self._write_hashes(file, type_)
        tables = {name: ErasedColumn(record.column, str(type_)) for name, type_ in types.items()}
        self._write(replace(record, suppress=suppress or record.suppress, tables={**record.tables, **tables}))

    def finish(self) -> None:
        """Mark the request as finished."""
        self._write(replace(self.record, finished=now()))

    def doom(self, uris: Sequence[str]) -> None:
        """Mark objects for deletion, before they are deleted."""
        if hashes := {self._hash(uri) for uri in uris} - self._doomed:
            self._doomed |= hashes
            self._put("doomed", b"".join(sorted(hashes)), "bin")

    def are_doomed(self, uris: Sequence[str]) -> list[bool]:
        """Return for each object whether this request or another unfinished one marked it for deletion."""
        ledgers = [each for each in (self, *self._earlier) if each._doomed]
        return [any(each._hash(uri) in each._doomed for each in ledgers) for uri in uris]

    def note(self, kind: str, lines: Iterable[Any]) -> None:
        """Store values (of structs or dataclasses) for the report of a resumed attempt."""
        if content := b"".join(msgspec.json.encode(line) + b"\n" for line in lines):
            self._put(kind, content, "jsonl")

    def noted(self, kind: str) -> Iterator[Any]:
        """Yield the values that all attempts stored."""
        for content in self._contents(kind):
            yield from map(msgspec.json.decode, content.splitlines())

    def _hash(self, uri: str) -> bytes:
        return hmac.digest(self.salt, b"u" + uri.encode(), "sha256")

    def _read_doomed(self) -> None:
        for content in self._contents("doomed"):
            self._doomed |= {content[begin : begin + _HASH] for begin in range(0, len(content), _HASH)}

    def _contents(self, kind: str) -> Iterator[bytes]:
        s3 = self.access.client("s3")
        return (get(s3, uri) for uri, _ in listed(s3, f"{self.folder}/{kind}"))

    def _put(self, kind: str, content: bytes, ending: str) -> None:
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.{ending}"
        put(self.access.client("s3"), f"{self.folder}/{kind}/{name}", content)

    def _write(self, record: RequestRecord) -> None:
        put(self.access.client("s3"), f"{self.folder}/{REQUEST}", msgspec.json.format(msgspec.json.encode(record)))
        self.record = record

    def _write_hashes(self, file: IdsFile, type_: pa.DataType) -> None:
        uri = f"{self.folder}/{HASHES}/{hashes_name(str(type_))}"
        upload = Upload(self.access.client("s3"), uri, deferred=False)
        with rollback_on_error(upload.abort):
            for digest in file.digests(type_, self.record.column, self.salt):
                upload.write(digest)
            upload.close()


def _check(file: IdsFile, salt: bytes) -> tuple[str, int]:
    """Return the sum of the salted hashes of all IDs as texts, independent of their order, and the number of IDs."""
    total = count = 0
    for digest in file.digests(_TEXT, "", salt):
        total += int.from_bytes(digest, "big")
        count += 1
    return f"{total % 2**256:064x}", count
