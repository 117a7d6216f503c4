"""Erase rows from the archive (RECORD lines as received) and from the rejects (dead letters with the originals)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from destination_datalake.archive.ledger import remove_hashes
from destination_datalake.archive.objects import ARCHIVE_FOLDER, table_folder
from destination_datalake.aws.objects import delete, folders_in, listed
from destination_datalake.erasure.columns import TableColumns, with_zone_of
from destination_datalake.erasure.objects import Group, Objects, stored_in
from destination_datalake.erasure.place import ErasedObject
from destination_datalake.files.key_guard import KEY_CHANGED
from destination_datalake.records.decoded import FIELD_SIZE_LIMITATION, SERIALIZATION_ERROR
from destination_datalake.records.record import RECORD_TIME_OUT_OF_RANGE, RECORD_UNREADABLE
from destination_datalake.rejects.ledger import REJECTS_FOLDER
from destination_datalake.tables.naming import REBUILD_SUFFIX, REPLAY_SUFFIX
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.erasure.place import Request
    from destination_datalake.files.erase import EraseResult, StoredObject
    from destination_datalake.schema.types import Field


_REASONS = (
    SERIALIZATION_ERROR,
    FIELD_SIZE_LIMITATION,
    RECORD_TIME_OUT_OF_RANGE,
    RECORD_UNREADABLE,
    KEY_CHANGED,
)
"""The reasons of rejects. Each reason has a folder."""


class _Records(Objects):
    """Objects with records of a table's stream, searched by the table's column."""

    def __init__(self, request: Request, table: TableName, name: str) -> None:
        super().__init__(request, table, f"{name} of table {table}")

    def columns(self) -> tuple[Field, ...]:
        """Return the fields of the records that the column's values come from."""
        found = TableColumns.of(self.table, self.request).in_records(self.request.column)
        return with_zone_of(self.request.types.get(self.table), found)


class Archive(_Records):
    """The archived lines of a table, and leftover metadata of a `replay --replace`, whose bounds can contain IDs."""

    content = "archive"

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table, "Archive")
        self._folder = table_folder(request.config.uri(ARCHIVE_FOLDER), *table)

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folder of the present and former objects."""
        return (self._folder,)

    def takes(self, uri: str) -> bool:
        """Return whether an object has lines; the others are journal entries and catalogs."""
        return uri.removeprefix(f"{self._folder}/").startswith("dt=")

    def groups(self) -> Iterator[Group]:
        """Yield the archived objects, one per group."""
        for day in folders_in(self.access.client("s3"), self._folder):
            if day.startswith("dt="):
                yield from ((each,) for each in stored_in(self.access, f"{self._folder}/{day}"))

    def find(self) -> Iterator[ErasedObject]:
        """Yield each object with lines of the IDs, and metadata with bounds of values."""
        yield from super().find()
        for uri in self._leftover_metadata():
            yield ErasedObject(uri, -1, reason="leftover metadata of a completed `replay --replace`")

    def erase(self) -> Iterator[ErasedObject]:
        """Rewrite archived objects without the rows, and delete the metadata."""
        yield from super().erase()
        s3 = self.access.client("s3")
        for uri in self._leftover_metadata():
            delete(s3, uri)
            yield ErasedObject(uri, -1, -1, "removed")

    def _run(self, groups: Sequence[Group], *, write: bool) -> Iterator[EraseResult]:
        """Run the job. Remove the hashes of objects from the journal first, as a rewrite changes them."""
        if write:
            remove_hashes(self._folder, [each.uri for group in groups for each in group], self.access)
        yield from super()._run(groups, write=write)

    def _leftover_metadata(self) -> list[str]:
        """Return the metadata of replaced tables (`replay --replace`) that no table references."""
        rebuilt = TableName(self.table.database, f"{self.table.table}{REBUILD_SUFFIX}")
        if not self._columns or self.request.catalog.find(rebuilt) is not None:
            return []
        return [uri for uri, _ in listed(self.access.client("s3"), f"{self._folder}/replay/metadata")]


class Rejects(_Records):
    """The dead letters of a table, and of the tables that replays made from it."""

    content = "rejects"

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table, "Rejects")

    def groups(self) -> Iterator[Group]:
        """Yield the objects of each attempt at a unit, of all reasons together."""
        yield from by_attempt(each for folder in self.folders for each in stored_in(self.access, folder))

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders of the present and former objects: one for each reason and table."""
        root = self.request.config.uri(REJECTS_FOLDER)
        tables = [f"{self.table}{suffix}" for suffix in ("", REPLAY_SUFFIX, REBUILD_SUFFIX)]
        # A reason without current objects can have noncurrent versions, so include all known reasons.
        reasons = dict.fromkeys((*_REASONS, *folders_in(self.access.client("s3"), root)))
        return tuple(f"{root}/{reason}/{table}" for reason in reasons for table in tables)


def by_attempt(rejects: Iterable[StoredObject]) -> Iterator[Group]:
    """Yield the objects of each attempt at a unit as a group: they differ only in the folder of the reason."""
    attempts: dict[tuple[str, ...], list[StoredObject]] = defaultdict(list)
    for each in rejects:
        attempts[tuple(each.uri.rsplit("/", 3)[1:])].append(each)
    return (tuple(group) for group in attempts.values())
