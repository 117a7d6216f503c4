"""Finds the objects to which a table refers, from metadata to data files, and deletes unreferenced objects.

To delete no live object, this module reads all metadata with two readers that share no code. The first reader, which
commits also use, must find every object that the second reader finds. The first reader either reads a manifest
completely or raises Incomplete.

This module keeps a hash of eight bytes per referenced object in memory: 80 MB for ten million files. If two hashes
collide, an unreferenced object seems to be referenced, so this module does not delete the object. The module computes
the hash from the object's normalised key, not from the address of the object. The reason is that engines write the same
address in several ways, and that an S3 access point has another name than its bucket.

As a last guard, this module never deletes an object outside the table's folder.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from itertools import islice
from posixpath import normpath
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from botocore.exceptions import ClientError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from destination_datalake.aws.objects import S3Address
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement, SecondReader
from destination_datalake.tables.iceberg.snapshots.files import Incomplete, complete_entries, manifests_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef
    from pyiceberg.table.metadata import TableMetadata

_BUCKET = re.compile(r"^[a-z][a-z0-9+.-]*://[^/]*", re.IGNORECASE)
_READERS = 8
"""Maximum number of concurrent requests to S3."""

_MERGED_AT = 1 << 16
"""Minimum number of new hashes before `References` merges them into the sorted hashes."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class References:
    """The objects to which one or more states of a table refer. A caller can add references, but cannot remove any.

    Skips snapshots and manifests with a sequence number below `since`, because these cannot refer to objects that were
    written later. Methods may raise Disagreement, and errors from reading metadata.
    """

    def __init__(self, io: FileIO, s3: S3Client, since: int = 0) -> None:
        self.io = io
        self._second = SecondReader(s3)
        self._since = since
        self._sorted: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._new = array("Q")
        self._read: set[int] = set()
        """The hashes of the manifest lists and manifests that the first reader has read."""
        self._confirmed: set[int] = set()
        """The hashes of the manifest lists and manifests that the second reader has confirmed."""
        self._unread: tuple[Sequence[str], Sequence[ManifestFile]] = ((), ())
        """The new manifest lists in the last state, and the new manifests in these lists.

        The data files and delete files in these manifests have not been added yet.
        """
        self._unconfirmed: tuple[Sequence[str], Sequence[str]] = ((), ())
        """The manifest lists and manifests that the second reader has not confirmed yet."""

    def add_metadata(
        self, metadata: TableMetadata, metadata_location: str, expired: Collection[int] = frozenset()
    ) -> None:
        """Add the metadata files, statistics files, manifest lists and manifests of one state of the table.

        Call `add_files` afterwards to add the data files and delete files. This method does not read manifest lists
        again that it has read for an earlier state. `expired` contains the IDs of snapshots that `metadata` lacks, but
        that the file at `metadata_location` still contains, as in a dry run.
        """
        self._add(metadata_location)
        self._add(*(entry.metadata_file for entry in metadata.metadata_log))
        self._add(
            *(statistics.statistics_path for statistics in (*metadata.statistics, *metadata.partition_statistics))
        )
        snapshots = [snapshot for snapshot in metadata.snapshots if (snapshot.sequence_number or 0) >= self._since]
        lists = dict.fromkeys(snapshot.manifest_list for snapshot in snapshots)
        unread_lists = [path for path in lists if _hash(path) not in self._read]
        manifests: dict[str, ManifestFile] = {}
        for listed in read_concurrently(lambda path: manifests_of(path, self.io), unread_lists):
            for manifest in listed:
                if (manifest.sequence_number or 0) >= self._since and _hash(manifest.manifest_path) not in self._read:
                    manifests[manifest.manifest_path] = manifest
        self._add(*unread_lists, *manifests)
        self._unread = unread_lists, [*manifests.values()]
        self._confirm_metadata(metadata_location, expired)

    def add_files(self) -> None:
        """Add the data files and delete files in the manifests of the last state passed to `add_metadata`."""
        lists, manifests = self._unread
        for files in read_concurrently(lambda manifest: live_files(manifest, self.io), manifests):
            self._add(*(file.path for file in files))
        # Only now: if a read fails, the next call reads these objects again.
        self._read |= {*map(_hash, lists), *(_hash(manifest.manifest_path) for manifest in manifests)}
        second_lists, second_manifests = self._unconfirmed
        second_files = read_concurrently(self._second.live_files, second_manifests)
        for path, paths in zip(second_manifests, second_files, strict=True):
            self._require(path, paths)
        self._confirmed |= {*map(_hash, second_lists), *map(_hash, second_manifests)}
        self._unread = self._unconfirmed = ((), ())

    def _confirm_metadata(self, metadata_location: str, expired: Collection[int]) -> None:
        """Raise Disagreement if the second reader finds an object in the metadata that the first reader has not found.

        `add_files` compares the data files and delete files.
        """
        metadata = self._second.metadata(metadata_location)
        self._require(metadata_location, metadata.objects)
        lists = [
            snapshot.manifest_list
            for snapshot in metadata.snapshots or ()
            if snapshot.snapshot_id not in expired
            and snapshot.sequence_number >= self._since
            and _hash(snapshot.manifest_list) not in self._confirmed
        ]
        self._require(metadata_location, lists)
        unread: dict[str, None] = {}
        for path, listed in zip(lists, read_concurrently(self._second.manifests, lists), strict=True):
            manifests = [manifest for manifest, sequence in listed if sequence >= self._since]
            self._require(path, manifests)
            unread |= {manifest: None for manifest in manifests if _hash(manifest) not in self._confirmed}
        self._unconfirmed = (lists, [*unread])

    def _require(self, source: str, paths: Sequence[str]) -> None:
        for path, is_missing in zip(paths, self.are_unreferenced(paths), strict=True):
            if is_missing:
                raise Disagreement(
                    f"{source} refers to {path}, but only one of the connector's two readers found this reference"
                )

    def are_unreferenced(self, paths: Sequence[str]) -> list[bool]:
        """Return one boolean per path: True if no state of the table refers to the object."""
        self._merge()
        hashes = np.fromiter(map(_hash_of_key, paths), np.uint64, len(paths))
        # `places[i]` is the index at which the hash of path i is, if it is present. For higher hashes than all present
        # ones, this index is behind the end.
        places = np.searchsorted(self._sorted, hashes)
        known = np.zeros(len(paths), bool)
        inside = places < len(self._sorted)
        known[inside] = self._sorted[places[inside]] == hashes[inside]
        unknown: list[bool] = (~known).tolist()
        return unknown

    def unreferenced(self, files: Iterable[File]) -> list[File]:
        """Return those of `files` to which no state of the table refers, without duplicates."""
        distinct = list(dict.fromkeys(files))
        are_dead = self.are_unreferenced([file.path for file in distinct])
        return [file for file, is_dead in zip(distinct, are_dead, strict=True) if is_dead]

    def _add(self, *paths: str) -> None:
        self._new.extend(map(_hash_of_key, paths))
        # The limit grows with the sorted hashes, so that all merges together copy each hash only a few times.
        if len(self._new) >= _MERGED_AT + len(self._sorted) // 8:
            self._merge()

    def _merge(self) -> None:
        if self._new:
            self._sorted = np.union1d(self._sorted, np.frombuffer(self._new, np.uint64))
            self._new = array("Q")


def read_concurrently(read: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Yield the result of `read` for each item, in the order of the items.

    Up to eight threads call `read` ahead of the caller.
    """
    with ThreadPoolExecutor(_READERS, "metadata") as pool:
        running: deque[Future[_R]] = deque()
        try:
            for item in items:
                running.append(pool.submit(read, item))
                # Do not read further ahead of the caller, because results stay in memory.
                if len(running) > 2 * _READERS:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            # Also if the caller stops early: do not send the requests that have not begun.
            for future in running:
                future.cancel()


def _hash(path: str) -> int:
    return int.from_bytes(blake2b(path.encode(), digest_size=8).digest(), "little")


def _hash_of_key(path: str) -> int:
    """Return the hash of an object's normalised key, which is the same for all spellings of the object's address.

    Ignores the scheme, such as s3, s3a or s3n. Resolves repeated slashes and the names `.` and `..`, because Hadoop's
    `Path` resolves them when it writes an object, but metadata may contain the original path.
    """
    key = _BUCKET.sub("", path)
    if "//" in key or "/." in key:
        key = normpath(f"/{key.lstrip('/')}")
    # The bucket is not part of the hash. Equal keys in two buckets only protect each other from deletion.
    return _hash(key)


# --- the first reader, which commits also use -------------------------------------------------------------------------


class File(NamedTuple):
    """The path and the size in bytes of an object, and the modification time if S3 has listed the object."""

    path: str
    size: int
    modified: datetime = datetime.min.replace(tzinfo=UTC)


def live_files(manifest: ManifestFile, io: FileIO) -> list[File]:
    """Return the live data files and delete files in a manifest.

    Raises Incomplete if the manifest cannot be read, or if the number of its live files differs from the number in the
    manifest list. Raises FileNotFoundError if the manifest is missing, and botocore's exceptions.
    """
    entries = (entry.data_file for entry in complete_entries(manifest, io))
    live = [File(file.file_path, file.file_size_in_bytes) for file in entries]
    added, existing = manifest.added_files_count, manifest.existing_files_count  # None in old tables.
    if added is not None and existing is not None and len(live) > added + existing:
        raise Incomplete(
            f"{manifest.manifest_path} contains {len(live)} live files, but the manifest list records "
            f"{added + existing}"
        )
    return live


# --- deletion, and the conditions that forbid it ----------------------------------------------------------------------


_GARBAGE_COLLECTION = "gc.enabled"
_TOLERATED = timedelta(hours=1)

_BATCH_SIZE = 1000
"""Maximum number of objects per DeleteObjects request of S3."""


class MaintenanceSkipped(Exception):
    """Raised to skip the maintenance of a table, or one step of it. The message is a clause about the table."""


def is_garbage_collected(metadata: TableMetadata) -> bool:
    """Return whether the connector may delete files of the table (Iceberg: `gc.enabled`).

    Users set the property to false if other tables use the same files.
    """
    return metadata.properties.get(_GARBAGE_COLLECTION, "true").lower() != "false"


def require_garbage_collection(metadata: TableMetadata) -> None:
    """Raise MaintenanceSkipped if the property `gc.enabled` is false. Other tables may then use the table's files."""
    if not is_garbage_collected(metadata):
        problem = f"its property {_GARBAGE_COLLECTION} is false, so other tables may use its files"
        raise MaintenanceSkipped(problem)


def require_clock(s3: S3Client, folder: S3Address) -> None:
    """Raise MaintenanceSkipped if this machine's clock differs from the clock of S3 by more than an hour.

    Maintenance computes the age of files from this machine's clock. A wrong clock causes no other error: AWS rejects a
    request with a wrong time, but botocore then corrects the time in the signature and repeats the request. So this
    function compares the clock with the date of a response from S3.
    """
    answer = s3.list_objects_v2(Bucket=folder.bucket, Prefix=f"{folder.key}/", MaxKeys=1)
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if date is not None and abs(datetime.now(UTC) - parsedate_to_datetime(date)) > _TOLERATED:
        raise MaintenanceSkipped(
            f"this machine's clock differs from the clock of S3 ({date}) by more than an hour. Correct this machine's "
            "clock"
        )


class DeadlineExceeded(Exception):
    """Raised if the maintenance of a table reaches its time limit. The next run continues the maintenance."""


def is_inside(path: str, folder: S3Address) -> bool:
    """Return whether an object is in a folder of S3, at any depth."""
    try:
        address = S3Address.parse(path)
    except ValueError:
        return False
    return address.bucket == folder.bucket and address.key.startswith(f"{folder.key}/")


@dataclass(slots=True)
class Deletion:
    """Deletes objects in a table's folder, and counts the deleted objects.

    `folder` is the table's location in S3. A dry run deletes nothing, but counts and lists the objects to delete.
    `files` and `bytes` are the number and the total size of the objects.
    """

    s3: S3Client
    folder: S3Address
    dry_run: bool = False
    should_continue: Callable[[], bool] = lambda: True
    files: int = 0
    bytes: int = 0
    outside: int = 0
    """The number of objects outside the folder, for example imported files. `delete` does not delete such objects."""
    paths: list[str] = field(default_factory=list)
    """The paths of the objects that a dry run would delete."""

    def delete(self, files: Iterable[File]) -> None:
        """Delete those of `files` that are in the folder. Also count objects that no longer exist.

        Raises ClientError if S3 cannot delete an object, and DeadlineExceeded if `should_continue` returns False.
        """
        remaining = iter(files)
        while batch := list(islice(remaining, _BATCH_SIZE)):
            if not self.should_continue():
                raise DeadlineExceeded
            inside = [file for file in batch if is_inside(file.path, self.folder)]
            self.outside += len(batch) - len(inside)
            if self.dry_run:
                self.paths += [file.path for file in inside]
            elif inside:
                self._delete([{"Key": S3Address.parse(file.path).key} for file in inside])
            self.files += len(inside)
            self.bytes += sum(file.size for file in inside)

    def _delete(self, keys: list[ObjectIdentifierTypeDef]) -> None:
        answer = self.s3.delete_objects(Bucket=self.folder.bucket, Delete={"Objects": keys, "Quiet": True})
        # DeleteObjects responds with status 200 even if it could not delete some objects.
        for error in answer.get("Errors", []):
            response = {"Error": {"Code": error.get("Code", ""), "Message": error.get("Message", "")}}
            raise ClientError(response, "DeleteObjects")  # type: ignore[arg-type]
