"""Read the archive of a table from S3: the journal of syncs and batches, and lines without an entry.

An object that cannot be read is reported by name; reading continues with the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from destination_datalake.archive.objects import ArchivedBatch, ArchivedEnd, ArchivedSync, row_id_prefix
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import get, listed
from destination_datalake.errors import ConnectorError
from destination_datalake.files.plan import UnitLines
from destination_datalake.protocol.catalog import Stream, parse_catalog

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectTypeDef

    from destination_datalake.aws.access import AwsAccess

CONCURRENT_CALLS = 16

SPACING = 1000
"""The gap between the sequence numbers of two events, so that batches without an entry can be numbered in between."""

_ENTRY = re.compile(r"index/(\d+)-([0-9a-f]+)/(begin|end|\d+)\.json")
_LINES = re.compile(r"(dt=[0-9-]+/([0-9a-f]+)-(\d+)-\d+-[0-9a-f]+\.jsonl\.gz)")

_Entry = TypeVar("_Entry", ArchivedSync, ArchivedBatch, ArchivedEnd)


@dataclass(frozen=True, slots=True)
class StoredLines:
    """An object of archived lines in S3; `size` in bytes. `only` are the numbers of the lines to replay; None: all."""

    archived: UnitLines
    uri: str
    etag: str
    size: int
    only: tuple[int, ...] | None = None

    @property
    def unit(self) -> str:
        """Return the common prefix of the raw IDs of its rows."""
        return row_id_prefix(self.archived.first_id)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch in the journal: its sequence number, its lines that still exist, and the number of rows written."""

    sequence_number: int
    lines: tuple[StoredLines, ...] = ()
    rows: int = 0


@dataclass
class StoredSync:
    """A sync of one stream. `batches` have an entry in the journal, `unindexed` are the lines of batches without one.

    `begun` and `published` are sequence numbers. `catalog` is the stream's configuration without the ids of the sync.
    """

    sync: ArchivedSync
    catalog: Mapping[str, Any]
    begun: int = 0
    batches: dict[int, StoredBatch] = field(default_factory=dict)
    unindexed: dict[int, list[StoredLines]] = field(default_factory=dict)
    published: int | None = None

    def __str__(self) -> str:
        """Return the sync's name and time, for messages."""
        return f"{self.name} of {time_text(self.sync.started)}"

    @property
    def name(self) -> str:
        """Return the unique name of the sync."""
        return self.sync.sync

    @property
    def last(self) -> int:
        """Return the sequence number of the sync's last known event."""
        return max(self.begun, *(batch.sequence_number for batch in self.batches.values()), self.published or 0)

    @cached_property
    def stream(self) -> Stream:
        """Return the stream as configured for the sync. Raises ConfigError if the catalog has none."""
        [stream] = parse_catalog({"streams": [self.configured]})
        return stream

    @property
    def configured(self) -> Mapping[str, Any]:
        """Return the stream's entry in the configured catalog of the sync."""
        sync = self.sync
        ids = {
            "generation_id": sync.generation,
            "minimum_generation_id": sync.minimum_generation,
            "sync_id": sync.sync_id,
        }
        return {**self.catalog, **{name: value for name, value in ids.items() if value is not None}}

    def configure(self, catalog: Mapping[str, Any]) -> None:
        """Set the stream's configuration. It also gives the names that were too long for an object's metadata."""
        self.catalog = catalog
        if not self.sync.stream:
            stream = catalog["stream"]
            named = {"stream": stream["name"], "namespace": stream.get("namespace") or None}
            self.sync = msgspec.structs.replace(self.sync, **named)

    def lines(self) -> Iterator[StoredLines]:
        """Yield the lines of all batches."""
        for batch in self.batches.values():
            yield from batch.lines
        for unindexed in self.unindexed.values():
            yield from unindexed


@dataclass(frozen=True, slots=True)
class History:
    """All syncs in the order in which they began.

    `missing` are the names of lines that the journal lists and S3 lacks, or whose catalog S3 lacks. `unreadable` are
    entries that cannot be read. `foreign` are objects that do not belong to this archive, or are copies. The texts of
    both begin with the object's name.
    """

    syncs: Sequence[StoredSync]
    missing: Sequence[str]
    unreadable: Sequence[str] = ()
    foreign: Sequence[str] = ()


def read_history(folder: str, access: AwsAccess) -> History:
    """Read the archive of the table with this folder, an S3 URI. Raises the errors of the S3 client."""
    present = {uri.removeprefix(f"{folder}/"): each for uri, each in listed(access.client("s3"), folder)}
    reader = _Reader(folder, present)
    entries = {name: match for name in present if (match := _ENTRY.fullmatch(name)) is not None}
    contents = dict(zip(entries, _read(folder, entries, access), strict=True))
    for name, match in entries.items():
        if match[3] == "begin":
            reader.begin(name, contents[name])
    for name, match in entries.items():
        if match[3] != "begin" and match[2] in reader.syncs:
            reader.event(name, match, contents[name])
    unindexed = [match for name in present if name not in reader.indexed and (match := _LINES.fullmatch(name))]
    for match, metadata in zip(unindexed, _heads(folder, [match[1] for match in unindexed], access), strict=True):
        reader.unindexed(match, metadata)
    reader.order()
    hashes = sorted({hash_ for sync in reader.syncs.values() if _catalog_name(hash_ := sync.sync.catalog) in present})
    catalogs = dict(zip(hashes, _read(folder, map(_catalog_name, hashes), access), strict=True))
    for name, sync in [*reader.syncs.items()]:
        if not reader.configure(sync, catalogs.get(sync.sync.catalog)):
            reader.missing += [lines.archived.name for lines in reader.syncs.pop(name).lines()]
    syncs = sorted(reader.syncs.values(), key=lambda sync: (sync.begun, sync.name))
    return History(syncs, reader.missing, reader.unreadable, reader.foreign)


class _Reader:
    """Assembles a history from the objects of a folder."""

    def __init__(self, folder: str, present: Mapping[str, ObjectTypeDef]) -> None:
        self._folder = folder
        self._present = present
        self._events: list[tuple[StoredSync, int, int, Callable[[int], None]]] = []
        self._units: dict[str, str] = {}
        self.syncs: dict[str, StoredSync] = {}
        self.indexed: set[str] = set()
        self.missing: list[str] = []
        self.unreadable: list[str] = []
        self.foreign: list[str] = []

    def begin(self, name: str, content: bytes) -> None:
        """Add the first entry of a sync."""
        entry = self._entry(name, content, ArchivedSync)
        if entry is not None:
            self._add(entry)

    def event(self, name: str, match: re.Match[str], content: bytes) -> None:
        """Add the entry of a batch or of a publication."""
        sync = self.syncs[match[2]]
        if match[3] == "end":
            if (end := self._entry(name, content, ArchivedEnd)) is not None:

                def publish(sequence_number: int) -> None:
                    sync.published = sequence_number

                self._events.append((sync, end.position, end.published, publish))
            return
        if (batch := self._entry(name, content, ArchivedBatch)) is None:
            return
        self.missing += [archived.name for archived in batch.objects if archived.name not in self._present]
        lines = tuple(self._stored(archived) for archived in batch.objects if archived.name in self._present)
        self.indexed.update(stored.archived.name for stored in lines)
        self._units |= {stored.archived.first_id: stored.archived.name for stored in lines}

        def commit(sequence_number: int) -> None:
            sync.batches[batch.batch] = StoredBatch(sequence_number, lines, batch.rows)

        self._events.append((sync, batch.position, batch.committed, commit))

    def unindexed(self, match: re.Match[str], metadata: Mapping[str, str]) -> None:
        """Add lines without an entry, as described by their object's metadata."""
        name = match[1]
        try:
            described = ArchivedSync.from_metadata(metadata)
            count, bytes_, first_record = (int(metadata[key]) for key in ("lines", "bytes", "first-record"))
            lines = self._stored(UnitLines(name, count, bytes_, first_record, metadata["first-id"]))
        except (KeyError, ValueError):  # Errors of msgspec and JSON are ValueErrors.
            self.foreign.append(f"{name} has no archive metadata")
            return
        original = self._units.setdefault(lines.archived.first_id, name)
        if described.sync != match[2] or original != name:
            self.foreign.append(f"{name} is a copy of another object")
            return
        sync = self.syncs.get(described.sync) or self._add(described)
        sync.unindexed.setdefault(int(match[3]), []).append(lines)

    def order(self) -> None:
        """Assign each event its sequence number, ordered by table, position in the table, and time."""
        first: dict[str, int] = {}
        for sync, _, milliseconds, _ in self._events:
            first[sync.sync.table] = min(milliseconds, first.get(sync.sync.table, milliseconds))
        in_order = sorted(self._events, key=lambda event: (first[event[0].sync.table], *event[1:3]))
        for number, (*_, set_sequence_number) in enumerate(in_order, start=1):
            set_sequence_number(number * SPACING)

    def configure(self, sync: StoredSync, catalog: bytes | None) -> bool:
        """Set a sync's catalog; return False if it is missing or cannot be read."""
        if catalog is None:
            return False
        try:
            sync.configure(json.loads(catalog))
            _ = sync.stream
        except (KeyError, TypeError, ValueError, ConnectorError):
            self.unreadable.append(f"{_catalog_name(sync.sync.catalog)} is not a stream's catalog")
            return False
        return True

    def _add(self, entry: ArchivedSync) -> StoredSync:
        sync = self.syncs.setdefault(entry.sync, StoredSync(entry, {}))

        def begin(sequence_number: int) -> None:
            sync.begun = sequence_number

        self._events.append((sync, entry.position, entry.started, begin))
        return sync

    def _entry(self, name: str, content: bytes, kind: type[_Entry]) -> _Entry | None:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError:
            self.unreadable.append(f"{name} is not an entry of the journal")
            return None

    def _stored(self, archived: UnitLines) -> StoredLines:
        listing = self._present[archived.name]
        return StoredLines(archived, f"{self._folder}/{archived.name}", listing["ETag"], listing["Size"])


def time_text(milliseconds: int) -> str:
    """Return a time, in milliseconds since 1970-01-01 UTC, as text."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _catalog_name(hash_: str) -> str:
    return f"catalog/{hash_}.json"


def _read(folder: str, names: Iterable[str], access: AwsAccess) -> Iterator[bytes]:
    s3 = access.client("s3")
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        yield from pool.map(lambda name: get(s3, f"{folder}/{name}"), names)


def _heads(folder: str, names: Sequence[str], access: AwsAccess) -> Iterator[Mapping[str, str]]:
    s3, root = access.client("s3"), S3Address.parse(f"{folder}/")
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        yield from pool.map(lambda name: s3.head_object(Bucket=root.bucket, Key=f"{root.key}{name}")["Metadata"], names)
