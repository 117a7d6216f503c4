"""Files in a table's folder that nothing refers to and that have the rows: of dead syncs, and of an erasure's own past.

A sync that runs has files, too, that no table refers to yet. So one is deleted only if the journal of an erasure names
it, or if it is older than any writer takes from its upload to its commit. What nothing refers to is decided by two
readers that share no code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError

from destination_datalake.aws.objects import S3Address, get_or_none
from destination_datalake.files.plan import UNKNOWN, SourceFile
from destination_datalake.tables.iceberg.erasure.column import tells_in
from destination_datalake.tables.iceberg.maintenance.deletion import Deletion
from destination_datalake.tables.iceberg.maintenance.orphans import add_latest, is_of_a_table, table_folder
from destination_datalake.tables.iceberg.maintenance.references import File, References, read_concurrently

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.tables.iceberg.erasure.erase import TableErasure

_AT_ONCE = 50_000
"""Objects that are looked at together, which bounds memory."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An object that nothing refers to: how many rows with an id it has, -1 for metadata and what is doomed."""

    uri: str
    rows: int
    deletable: bool
    since: datetime


@dataclass(frozen=True, slots=True)
class Strays:
    """The strays of one table. `are_doomed` tells which objects the journals of erasures name."""

    erasure: TableErasure
    age: timedelta
    are_doomed: Callable[[Sequence[str]], list[bool]]

    def find(self, now: datetime) -> Iterator[Stray]:
        """Yield the strays that have the rows or are doomed. Raises what reading metadata and S3 raise."""
        try:
            s3, folder, references = self._referenced()
        except NoSuchTableError:
            return
        for objects in self._unreferenced(folder, references, s3):
            doomed = self.are_doomed([each.uri for each in objects])
            named = [each for each, is_ours in zip(objects, doomed, strict=True) if is_ours]
            others = [each for each, is_ours in zip(objects, doomed, strict=True) if not is_ours]
            rows = self._rows([each for each in others if each.uri.endswith(".parquet")])
            rows |= dict.fromkeys(self._telling([each.uri for each in others if each.uri.endswith(".avro")], s3), -1)
            yield from (Stray(each.uri, -1, True, each.modified) for each in named)
            yield from (
                Stray(each.uri, rows[each.uri], each.modified < now - self.age, each.modified)
                for each in others
                if each.uri in rows
            )

    def delete(self, strays: Sequence[Stray]) -> list[Stray]:
        """Delete the strays that may be deleted, unless the table refers to them by now; return those."""
        s3, folder, references = self._referenced()
        wanted = {each.uri: each for each in strays if each.deletable}
        dead = references.unreferenced(File(uri, 0) for uri in wanted)
        Deletion(s3, folder).delete(dead)
        return [wanted[file.path] for file in dead]

    def _referenced(self) -> tuple[S3Client, S3Address, References]:
        """Return the table's folder, and what it refers to."""
        operations = self.erasure.operations
        table, s3 = operations.load(), operations.access.client("s3")
        folder, references = table_folder(table), References(table.io, s3)
        add_latest(references, table, operations)
        return s3, folder, references

    def _unreferenced(self, folder: S3Address, references: References, s3: S3Client) -> Iterator[list[_Object]]:
        found: list[_Object] = []
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/"):
            objects = [
                _Object(str(S3Address(folder.bucket, each["Key"])), each["Size"], each["LastModified"])
                for each in page.get("Contents", [])
                if is_of_a_table(each["Key"], folder)
            ]
            are_dead = references.without([each.uri for each in objects])
            found += [each for each, is_dead in zip(objects, are_dead, strict=True) if is_dead]
            if len(found) >= _AT_ONCE:
                yield found
                found = []
        if found:
            yield found

    def _telling(self, manifests: Sequence[str], s3: S3Client) -> list[str]:
        """Return the manifests and manifest lists that tell an id."""

        def content(uri: str) -> bytes:
            return get_or_none(s3, uri) or b""

        contents = read_concurrently(content, manifests)
        field, ids = self.erasure.column.field, self.erasure.request.ids
        types, id_ = [field.field_type], field.field_id
        return [uri for uri, each in zip(manifests, contents, strict=True) if each and tells_in(each, types, ids, id_)]

    def _rows(self, files: Sequence[_Object]) -> dict[str, int]:
        """Return how many rows with an id each file has that has any. One that cannot be read is no data file."""
        if not files:
            return {}
        found = self.erasure.located([SourceFile(each.uri, each.size, UNKNOWN) for each in files])
        return {uri: rows.count for uri, rows in found.files.items()}


@dataclass(frozen=True, slots=True)
class _Object:
    uri: str
    size: int
    modified: datetime
