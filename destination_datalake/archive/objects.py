"""The objects in a table's archive, and the names of these objects.

    _raw/{database}.{table}/dt=2026-11-25/{sync}-{batch}-{part}-{attempt}.jsonl.gz   the lines of a unit
                           /catalog/{sha256}.json                                    the configuration of a stream
                           /index/{start}-{sync}/begin.json                          a sync has prepared the table
                                                /{batch}.json                        the sync has committed a batch
                                                /end.json                            the sync has published the table
    _schema/{database}/{table}.json                                                  the table's present columns

A unit is the part of a batch that one task encodes.

The entries under `index/` are the table's journal. For each batch, a sync first publishes the archived lines, then
commits the batch, writes the journal entry, and releases the batch's states. The journal therefore contains every
acknowledged row. Lines without a journal entry belong to a batch that was not acknowledged.

Each entry contains a position: the ID of the table, and the number of its last commit at that time. A replay orders the
entries of a table by position, and thus independently of clocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec

from destination_datalake.aws.objects import S3Address, is_changed, put, retry_until_done
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.plan import COUNTED_DIGITS, UnitLines

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ARCHIVE_FOLDER = "_raw"

SCHEMA_FOLDER = "_schema"
"""The folder for descriptions of tables. The folder is outside the archive, so that a lifecycle rule for old lines does
not delete the descriptions."""

_TEXT_BYTES = 1600
"""Maximum size in bytes of the names and keys in an object's S3 metadata. S3 limits the whole metadata to 2 KB, and the
metadata also contains numbers."""


class ArchivedSync(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first journal entry of a sync for one stream. The sync writes the entry when it has prepared the table.

    - `sync`: the unique name of the sync.
    - `started`: the time of this entry, in milliseconds since 1970-01-01 UTC.
    - `table`: the ID of the table. Earlier tables with the same name have other IDs.
    - `position`: the number of the table's last commit at this time, or 0 if it is unknown, as in old journals.
    - `found_empty`: whether the table had no rows at this time.
    - `catalog`: the SHA-256 hash of the stream's configuration, without the three IDs of the sync.
    - `keeps_lines`: false if the sync archived no records, and wrote journal entries only because an earlier sync had
      archived records of the table.
    """

    sync: str
    started: int
    stream: str
    catalog: str
    mode: str
    namespace: str | None = None
    key: tuple[str, ...] = ()
    cursor: tuple[str, ...] = ()
    generation: int | None = None
    minimum_generation: int | None = None
    sync_id: int | None = None
    found_empty: bool = False
    table: str = ""
    position: int = 0
    keeps_lines: bool = True

    def metadata(self) -> dict[str, str]:
        """Return the S3 metadata that describes this sync in its archived objects, in ASCII, as S3 requires.

        Omits names and keys that are too long. Readers take these names and keys from the archived configuration.
        """
        members = {
            name: _encode_ascii(value)
            for name, value in msgspec.to_builtins(self).items()
            if name not in _NOT_IN_METADATA
        }
        remaining_bytes = _TEXT_BYTES
        for name in _UNBOUNDED_TEXTS:
            if name in members and (size := len(name) + len(members[name])) <= remaining_bytes:
                remaining_bytes -= size
            else:
                members.pop(name, None)
        return {name.replace("_", "-"): value for name, value in members.items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self:
        """Return the sync that an object's S3 metadata describes, without `key` and `cursor`.

        If the metadata lacks the stream's name, `stream` is empty. If it lacks the namespace, `namespace` is None.
        """
        numbers = {
            name: int(metadata[name.replace("_", "-")]) for name in _NUMBERS if name.replace("_", "-") in metadata
        }
        texts = {name: _decode_text(metadata[name]) for name in _TEXTS if name in metadata}
        return msgspec.convert({"stream": "", **numbers, **texts}, cls)


class ArchivedBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The journal entry of a committed batch.

    `committed` is the time of this entry in milliseconds since 1970-01-01 UTC. `objects` describes the archived objects
    with the batch's lines. `position` is the number of the commit in the history of the table. `rows` is the number of
    rows that the batch wrote. `table` is the ID of the table, or "" in old journals.
    """

    batch: int
    committed: int
    objects: tuple[UnitLines, ...]
    position: int = 0
    rows: int = 0
    table: str = ""


class ArchivedEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last journal entry of a sync for one stream. The sync writes the entry after it has published the table.

    `published` is the time of this entry in milliseconds since 1970-01-01 UTC. `position` is the number of the last
    commit of the table with the ID `table`. `batches` is the number of the sync's entries of batches. In old journals,
    `table` is "", and `batches` is None.
    """

    published: int
    position: int = 0
    table: str = ""
    batches: int | None = None


SYNC_DECODER = msgspec.json.Decoder(ArchivedSync)
BATCH_DECODER = msgspec.json.Decoder(ArchivedBatch)
END_DECODER = msgspec.json.Decoder(ArchivedEnd)


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """The location in a table's archive to which a sync writes.

    `folder` is the S3 URI of the table's archive, without a trailing slash. `day` is the day on which the sync started
    (YYYY-MM-DD, UTC).
    """

    folder: str
    day: str
    sync: ArchivedSync

    @property
    def index(self) -> str:
        """Return the S3 URI of the folder that contains the sync's journal entries."""
        # 13 digits suffice until the year 2286. With a fixed width, S3 lists the syncs in the order of their starts.
        return f"{self.folder}/index/{self.sync.started:013d}-{self.sync.sync}"

    def name(self, attempt: str) -> str:
        """Return the name of an object with a unit's lines, relative to the folder of the table's archive.

        A unit is the part of a batch that one task encodes. `attempt` names the attempt of the task, so that a retried
        task writes another object.
        """
        return f"dt={self.day}/{attempt}.jsonl.gz"

    def metadata(self, archived: UnitLines) -> Mapping[str, str]:
        """Return the S3 metadata of an object with a unit's lines. The metadata describes the sync and the unit."""
        unit = {name.replace("_", "-"): str(value) for name, value in msgspec.to_builtins(archived).items()}
        del unit["name"], unit["sha256"]  # The upload sends the metadata before it has computed the hash.
        return {**self.sync.metadata(), **unit}


def _encode_ascii(value: object) -> str:
    """Return a printable ASCII string unchanged, and any other value as JSON in ASCII."""
    # HTTP removes spaces at the ends of a header's value, so such texts are stored as JSON. So are texts that begin
    # with a quotation mark, because `_decode_text` takes them for JSON.
    plain = isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip() != ""
    # JSON does not escape the control character DEL, which is invalid in an HTTP header.
    return str(value) if plain and not str(value).startswith('"') else json.dumps(value).replace("\x7f", "\\u007f")


def _decode_text(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


_NOT_IN_METADATA = frozenset(("found_empty", "table", "position", "keeps_lines"))
_NUMBERS = ("started", "generation", "minimum_generation", "sync_id")
_TEXTS = ("sync", "stream", "catalog", "mode", "namespace")
_UNBOUNDED_TEXTS = ("stream", "namespace", "key", "cursor")
"""The members of any length, in order of preference. `metadata` omits each member that does not fit in the remaining
space."""


class ConditionalObject:
    """An S3 object that this instance replaces only if no other writer has changed it since the last read or write.

    Write the object before you read it. If the role may not list the folder, S3 answers the read of a missing object
    with an access denial.
    """

    def __init__(self, uri: str, s3: S3Client) -> None:
        self._uri = uri
        self._s3 = s3
        self._etag: str | None = None

    def put(self, content: bytes) -> bool:
        """Write the object. If another writer has created or changed it, change nothing and return False.

        Raises errors of the S3 client.
        """
        try:
            # botocore sends the request again if the answer was lost. S3 then rejects the second request because of the
            # first, and this method returns False although it has written the object.
            self._etag = put(self._s3, self._uri, content, if_none_match=self._etag is None, if_match=self._etag)
        except self._s3.exceptions.ClientError as error:
            if not is_changed(error):
                raise
            return False
        return True

    def read(self) -> bytes:
        """Return the content of the object. A later `put` may replace this content. Raises errors of the S3 client."""
        address = S3Address.parse(self._uri)
        answer = self._s3.get_object(Bucket=address.bucket, Key=address.key)
        self._etag = answer["ETag"]
        return answer["Body"].read()

    def update(self, change: Callable[[bytes], bytes]) -> None:
        """Replace the content of the existing object by the result of `change`, unless this is the same content.

        If another writer changes the object at the same time, calls `change` again, with the new content. Raises
        ConnectorError if this happens eight times, errors of `change`, and errors of the S3 client.
        """

        def attempt() -> bool:
            content = self.read()
            changed = change(content)
            # If the answer to an earlier `put` was lost, the object already has the changed content.
            return changed == content or self.put(changed)

        if not retry_until_done(attempt):
            message = f"Cannot write {self._uri}: another program keeps changing it. Run the same command again later."
            raise ConnectorError(Failure(message, message, "transient_error"))


def table_folder(root: str, database: str, table: str) -> str:
    """Return the S3 URI of a table's archive. `root` is the S3 URI of the archives of all tables."""
    return f"{root}/{database}.{table}"


def row_id_prefix(first_id: str) -> str:
    """Return the prefix that the raw IDs of all rows of a unit share.

    A unit is the part of a batch that one task encodes. `first_id` is the raw ID of the unit's first line, without
    hyphens.
    """
    # A UUID consists of groups of 8, 4, 4, 4 and 12 digits. The line number is the end of the last group.
    digits = first_id[:-COUNTED_DIGITS]
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
