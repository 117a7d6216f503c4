"""Unreferenced files in a table's folder that have rows with an id: of dead syncs, and of interrupted erasures.

A running sync has unreferenced files too, which it is about to commit. Therefore a file is deleted only if the journal
of an erasure names it, or if it is older than any writer needs from its upload to its commit. Two readers that share no
code determine what is unreferenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError

from destination_datalake.aws.objects import S3Address, get_or_none
from destination_datalake.files.plan import UNKNOWN, SourceFile
from destination_datalake.tables.iceberg.erasure.column import manifest_reveals_id
from destination_datalake.tables.iceberg.maintenance.deletion import Deletion
from destination_datalake.tables.iceberg.maintenance.orphans import add_latest, is_of_a_table, table_folder
from destination_datalake.tables.iceberg.maintenance.references import File, References, read_concurrently

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.tables.iceberg.erasure.erase import TableErasure

_BATCH_SIZE = 50_000
"""Objects that are searched together, which bounds memory."""


@dataclass(frozen=True, slots=True)
class UnreferencedFile:
    """An unreferenced object. `rows` have an id; -1 for metadata, and for objects that are marked for deletion."""

    uri: str
    rows: int
    deletable: bool
    since: datetime


@dataclass(frozen=True, slots=True)
class UnreferencedFiles:
    """The unreferenced files of one table. `are_marked` returns which objects a journal of erasures names."""

    erasure: TableErasure
    age: timedelta
    are_marked: Callable[[Sequence[str]], list[bool]]

    def find(self, now: datetime) -> Iterator[UnreferencedFile]:
        """Yield the files that have the rows or are marked for deletion. Raises errors of reading metadata and S3."""
        try:
            s3, folder, references = self._referenced()
        except NoSuchTableError:
            return
        for objects in self._unreferenced(folder, references, s3):
            marked = dict(zip(objects, self.are_marked([object_.uri for object_ in objects]), strict=True))
            unmarked = [object_ for object_, is_marked in marked.items() if not is_marked]
            rows = self._rows([object_ for object_ in unmarked if object_.uri.endswith(".parquet")])
            manifests = [object_.uri for object_ in unmarked if object_.uri.endswith(".avro")]
            rows |= dict.fromkeys(self._revealing_manifests(manifests, s3), -1)
            for object_, is_marked in marked.items():
                if is_marked:
                    yield UnreferencedFile(object_.uri, -1, True, object_.modified)
            for object_ in unmarked:
                if object_.uri in rows:
                    is_old = object_.modified < now - self.age
                    yield UnreferencedFile(object_.uri, rows[object_.uri], is_old, object_.modified)

    def delete(self, files: Sequence[UnreferencedFile]) -> list[UnreferencedFile]:
        """Delete the files that may be deleted, unless the table refers to them by now; return the deleted ones."""
        s3, folder, references = self._referenced()
        wanted = {file.uri: file for file in files if file.deletable}
        dead = references.unreferenced(File(uri, 0) for uri in wanted)
        Deletion(s3, folder).delete(dead)
        return [wanted[file.path] for file in dead]

    def _referenced(self) -> tuple[S3Client, S3Address, References]:
        """Return the folder of the table, and its references."""
        operations = self.erasure.operations
        table, s3 = operations.load(), operations.access.client("s3")
        folder, references = table_folder(table), References(table.io, s3)
        add_latest(references, table, operations)
        return s3, folder, references

    def _unreferenced(self, folder: S3Address, references: References, s3: S3Client) -> Iterator[list[_Object]]:
        batch: list[_Object] = []
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/"):
            objects = [
                _Object(str(S3Address(folder.bucket, object_["Key"])), object_["Size"], object_["LastModified"])
                for object_ in page.get("Contents", [])
                if is_of_a_table(object_["Key"], folder)
            ]
            are_dead = references.are_unreferenced([object_.uri for object_ in objects])
            batch += [object_ for object_, is_dead in zip(objects, are_dead, strict=True) if is_dead]
            if len(batch) >= _BATCH_SIZE:
                yield batch
                batch = []
        if batch:
            yield batch

    def _revealing_manifests(self, manifests: Sequence[str], s3: S3Client) -> list[str]:
        """Return the manifests and manifest lists that contain an id."""

        def read(uri: str) -> bytes:
            return get_or_none(s3, uri) or b""

        contents = read_concurrently(read, manifests)
        field, ids = self.erasure.column.field, self.erasure.request.ids
        types, id_ = [field.field_type], field.field_id
        return [
            uri
            for uri, content in zip(manifests, contents, strict=True)
            if content and manifest_reveals_id(content, types, ids, id_)
        ]

    def _rows(self, files: Sequence[_Object]) -> dict[str, int]:
        """Return the number of rows with an id by file, without files that have none or cannot be read."""
        if not files:
            return {}
        matches = self.erasure.located([SourceFile(file.uri, file.size, UNKNOWN) for file in files])
        return {uri: rows.count for uri, rows in matches.files.items()}


@dataclass(frozen=True, slots=True)
class _Object:
    uri: str
    size: int
    modified: datetime
