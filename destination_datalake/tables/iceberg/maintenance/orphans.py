"""Removal of orphans: unreferenced files in a table's folder, which killed writers leave.

A file is removed if all of these conditions hold: it is a kind of file of Iceberg tables, in a folder that belongs to
the table alone; it is older than any writer needs from its upload to its commit; and no snapshot, statistics file or
entry of the metadata log refers to it, neither before the folder was listed nor afterwards. Metadata files that the log
no longer has are orphans too. If the folder has another table too, no file is removed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import S3Address, is_missing
from destination_datalake.tables.iceberg.maintenance.deletion import (
    DeadlineExceeded,
    Deletion,
    MaintenanceSkipped,
    require_clock,
    require_garbage_collection,
)
from destination_datalake.tables.iceberg.maintenance.references import File, References

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectTypeDef
    from pyiceberg.table import Table

    from destination_datalake.tables.iceberg.commit import TableOperations


_KINDS = re.compile(
    r"(data|metadata)/.*\.(parquet|orc|avro|metadata\.json|metadata\.json\.gz|gz\.metadata\.json|puffin|stats)"
)
"""Paths below a table's location (Iceberg: `write.data.path`, `write.metadata.path` and their defaults)."""

_METADATA = (".metadata.json", ".metadata.json.gz")
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_BEGINNING = "bytes=0-65535"
"""The first 64 KiB, as metadata files may be large. Writers begin with the table's id."""
_MAX_UUID_BYTES = 65536
_GZIP = b"\x1f\x8b"
_OF_GZIP = 16 + zlib.MAX_WBITS

_BATCH_SIZE = 100_000
"""Orphans that are collected before they are removed, which bounds memory."""


@dataclass(frozen=True, slots=True)
class Orphans:
    """The removed orphans. `old_metadata` are metadata files that the log no longer has."""

    files: Deletion
    old_metadata: Deletion


class OrphanRemover:
    """Removes the orphans of one table that are older than `age`."""

    def __init__(self, operations: TableOperations, age: timedelta) -> None:
        self._operations = operations
        self._s3 = operations.access.client("s3")
        self._age = age

    def remove(self, now: datetime, should_continue: Callable[[], bool], *, dry_run: bool) -> Orphans:
        """Remove the orphans. Raises MaintenanceSkipped, DeadlineExceeded, and errors of reading metadata and S3."""
        table = self._operations.load()
        require_garbage_collection(table.metadata)
        folder = table_folder(table)
        require_clock(self._s3, folder)
        references = References(table.io, self._s3)
        add_latest(references, table, self._operations)
        self._require_own_folder(table, references, folder, should_continue)
        removed = Orphans(*(Deletion(self._s3, folder, dry_run, should_continue) for _ in range(2)))
        batch: list[File] = []
        for page in self._list_pages(folder, should_continue):
            old = [
                File(str(S3Address(folder.bucket, object_["Key"])), object_["Size"])
                for object_ in page
                if object_["LastModified"] < now - self._age and is_of_a_table(object_["Key"], folder)
            ]
            batch += references.unreferenced(old)
            if len(batch) >= _BATCH_SIZE:
                self._remove(batch, table, references, removed)
                batch = []
        self._remove(batch, table, references, removed)
        return removed

    def _remove(self, files: list[File], table: Table, references: References, removed: Orphans) -> None:
        """Remove the files, unless a later state of the table refers to them."""
        if not files:
            return
        add_latest(references, table, self._operations)
        dead = references.unreferenced(files)
        removed.old_metadata.delete(file for file in dead if file.path.endswith(_METADATA))
        removed.files.delete(file for file in dead if not file.path.endswith(_METADATA))

    def _require_own_folder(
        self, table: Table, references: References, folder: S3Address, should_continue: Callable[[], bool]
    ) -> None:
        """Raise MaintenanceSkipped if the folder has metadata of another table, which another catalog may use."""
        for page in self._list_pages(folder, should_continue):
            keys = [object_["Key"] for object_ in page if object_["Key"].endswith(_METADATA)]
            files = [File(str(S3Address(folder.bucket, key)), 0) for key in keys]
            for file in references.unreferenced(files):
                if (uuid := self._uuid(S3Address.parse(file.path))) not in (None, str(table.metadata.table_uuid)):
                    raise MaintenanceSkipped(
                        f"its folder {folder} also has another table: {file.path} is metadata of table {uuid}. If that "
                        "table is not needed any more, delete its metadata files"
                    )

    def _uuid(self, address: S3Address) -> str | None:
        """Return the id of the table of a metadata file; None if another process has just deleted the file."""
        try:
            answer = self._s3.get_object(Bucket=address.bucket, Key=address.key, Range=_BEGINNING)
        except self._s3.exceptions.ClientError as error:
            if is_missing(error, self._s3, str(address)):
                return None
            raise
        content = answer["Body"].read()
        match = _UUID.search(
            zlib.decompressobj(_OF_GZIP).decompress(content, _MAX_UUID_BYTES) if content[:2] == _GZIP else content
        )
        return match[1].decode() if match else "unknown"

    def _list_pages(self, folder: S3Address, should_continue: Callable[[], bool]) -> Iterator[list[ObjectTypeDef]]:
        pages = self._s3.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/"):
            if not should_continue():
                raise DeadlineExceeded
            yield page.get("Contents", [])


def add_latest(references: References, table: Table, operations: TableOperations) -> None:
    """Add the references of the table's latest state. Raises MaintenanceSkipped if another table took its place."""

    def add(latest: Table) -> None:
        if latest.metadata.table_uuid != table.metadata.table_uuid or latest.location() != table.location():
            raise MaintenanceSkipped("another table has taken its place, or it has moved, meanwhile")
        references.add_metadata(latest.metadata, latest.metadata_location)
        references.add_files()

    operations.with_latest(add)


def table_folder(table: Table) -> S3Address:
    """Return the folder of a table. Raises MaintenanceSkipped if it is not in S3, or has no folder of its own."""
    try:
        folder = S3Address.parse(table.location().rstrip("/"))
    except ValueError:
        raise MaintenanceSkipped(f"its location {table.location()} is not in S3") from None
    if not folder.key:
        raise MaintenanceSkipped(f"its location {table.location()} is a whole bucket")
    return folder


def is_of_a_table(key: str, folder: S3Address) -> bool:
    """Whether an object can be a file of the table. Names that begin with `_` or `.` have other uses."""
    path = key[len(folder.key) + 1 :]
    return _KINDS.fullmatch(path) is not None and not any(part[:1] in ("_", ".") for part in path.split("/"))
