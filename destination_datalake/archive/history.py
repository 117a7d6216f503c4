"""The archive of a table as it is found in S3: its syncs, their batches, and lines without an index entry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from destination_datalake.archive.objects import ArchivedBatch, ArchivedEnd, ArchivedObject, ArchivedSync
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import get, listed

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

CONCURRENT_CALLS = 16

_ENTRY = re.compile(r"index/(\d+)-([0-9a-f]+)/(begin|end|\d+)\.json")
_LINES = re.compile(r"(dt=[0-9-]+/([0-9a-f]+)-(\d+)-\d+-[0-9a-f]+\.jsonl\.gz)")


@dataclass(frozen=True, slots=True)
class StoredLines:
    """An object of lines as S3 lists it; `size` in bytes, `modified` in milliseconds since 1970-01-01 UTC."""

    archived: ArchivedObject
    uri: str
    etag: str
    size: int
    modified: int


@dataclass(slots=True)
class StoredSync:
    """A sync of one stream. `batches` are those that the index has, `unindexed` are lines of batches that it lacks.

    `catalog` is the stream's configuration, without the ids of the sync.
    """

    sync: ArchivedSync
    catalog: Mapping[str, Any]
    batches: dict[int, tuple[int, tuple[StoredLines, ...]]] = field(default_factory=dict)
    unindexed: dict[int, list[StoredLines]] = field(default_factory=dict)
    published: int | None = None

    @property
    def configured(self) -> Mapping[str, Any]:
        """The stream as the configured catalog of the sync had it."""
        sync = self.sync
        ids = {
            "generation_id": sync.generation,
            "minimum_generation_id": sync.minimum_generation,
            "sync_id": sync.sync_id,
        }
        return {**self.catalog, **{name: value for name, value in ids.items() if value is not None}}

    def configure(self, catalog: Mapping[str, Any]) -> None:
        """Take the stream's configuration, also for what metadata had no room for."""
        self.catalog = catalog
        if not self.sync.stream:
            stream = catalog["stream"]
            named = {"stream": stream["name"], "namespace": stream.get("namespace") or None}
            self.sync = msgspec.structs.replace(self.sync, **named)

    def lines(self) -> Iterator[StoredLines]:
        """Yield the lines of all batches."""
        for _, indexed in self.batches.values():
            yield from indexed
        for unindexed in self.unindexed.values():
            yield from unindexed


@dataclass(frozen=True, slots=True)
class History:
    """All syncs in the order of their start.

    `gone` are the names of lines that the index has and S3 has not, or of which S3 has not the catalog.
    """

    syncs: Sequence[StoredSync]
    gone: Sequence[str]


class _Listed(msgspec.Struct, frozen=True):
    etag: str
    size: int
    modified: int


def read_history(folder: str, access: AwsAccess) -> History:
    """Read the archive of the table with this folder, an S3 URI. Raises what S3's client raises."""
    present = _list(folder, access)
    entries = {name: found for name in present if (found := _ENTRY.fullmatch(name)) is not None}
    contents = dict(zip(entries, _read(folder, entries, access), strict=True))
    syncs: dict[str, StoredSync] = {}
    for name, found in entries.items():
        if found[3] == "begin":
            _begin(msgspec.json.decode(contents[name], type=ArchivedSync), syncs)
    indexed: set[str] = set()
    gone: list[str] = []
    for name, found in entries.items():
        sync = syncs.get(found[2])
        if sync is None or found[3] == "begin":
            continue
        if found[3] == "end":
            sync.published = msgspec.json.decode(contents[name], type=ArchivedEnd).published
            continue
        batch = msgspec.json.decode(contents[name], type=ArchivedBatch)
        gone += [each.name for each in batch.objects if each.name not in present]
        kept = tuple(_stored(folder, each, present[each.name]) for each in batch.objects if each.name in present)
        indexed.update(each.archived.name for each in kept)
        sync.batches[batch.batch] = (batch.committed, kept)
    others = [found for name in present if name not in indexed and (found := _LINES.fullmatch(name)) is not None]
    for found, metadata in zip(others, _heads(folder, [found[1] for found in others], access), strict=True):
        name = found[1]
        sync = syncs.get(found[2]) or _begin(ArchivedSync.of_metadata(metadata), syncs)
        lines = _stored(folder, _archived(name, metadata), present[name])
        sync.unindexed.setdefault(int(found[3]), []).append(lines)
    hashes = sorted({each for sync in syncs.values() if f"catalog/{(each := sync.sync.catalog)}.json" in present})
    catalogs = dict(zip(hashes, _read(folder, [f"catalog/{each}.json" for each in hashes], access), strict=True))
    for name, sync in [*syncs.items()]:
        if sync.sync.catalog in catalogs:
            sync.configure(json.loads(catalogs[sync.sync.catalog]))
        else:
            gone += [each.archived.name for each in syncs.pop(name).lines()]
    return History(sorted(syncs.values(), key=lambda each: (each.sync.started, each.sync.sync)), gone)


def _begin(sync: ArchivedSync, syncs: dict[str, StoredSync]) -> StoredSync:
    return syncs.setdefault(sync.sync, StoredSync(sync, {}))


def _stored(folder: str, archived: ArchivedObject, found: _Listed) -> StoredLines:
    return StoredLines(archived, f"{folder}/{archived.name}", found.etag, found.size, found.modified)


def _archived(name: str, metadata: Mapping[str, str]) -> ArchivedObject:
    numbers = {key: int(metadata[key.replace("_", "-")]) for key in ("lines", "bytes", "first_record")}
    return ArchivedObject(name, first_id=metadata["first-id"], **numbers)


def _list(folder: str, access: AwsAccess) -> dict[str, _Listed]:
    return {
        uri.removeprefix(f"{folder}/"): _Listed(
            each["ETag"], each["Size"], int(each["LastModified"].timestamp() * 1000)
        )
        for uri, each in listed(access.client("s3"), folder)
    }


def _read(folder: str, names: Iterable[str], access: AwsAccess) -> Iterator[bytes]:
    s3 = access.client("s3")
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        yield from pool.map(lambda name: get(s3, f"{folder}/{name}"), names)


def _heads(folder: str, names: Sequence[str], access: AwsAccess) -> Iterator[Mapping[str, str]]:
    s3, root = access.client("s3"), S3Address.parse(f"{folder}/")
    with ThreadPoolExecutor(CONCURRENT_CALLS, "archive") as pool:
        yield from pool.map(lambda name: s3.head_object(Bucket=root.bucket, Key=f"{root.key}{name}")["Metadata"], names)
