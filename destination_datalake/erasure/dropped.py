"""Erase rows from the leftover files of dropped Iceberg tables, which no catalog references.

Files are rewritten in place, like files of Hive tables. Manifests that reveal an ID are deleted. A folder that overlaps
the location of a present table is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import delete, get
from destination_datalake.erasure.columns import saved_schema, with_zone_of
from destination_datalake.erasure.hive import HiveTarget, outermost, stream_of
from destination_datalake.erasure.objects import stored_in
from destination_datalake.erasure.place import ErasedObject
from destination_datalake.schema.evolution import WIDER
from destination_datalake.schema.iceberg import iceberg_type
from destination_datalake.tables.iceberg.erasure.column import tells_in
from destination_datalake.tables.location import TableLocation
from destination_datalake.tables.naming import TableNaming

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType

    from destination_datalake.erasure.place import Request
    from destination_datalake.files.erase import StoredObject
    from destination_datalake.schema.types import Field
    from destination_datalake.tables.table import TableName


class DroppedTableTarget(HiveTarget):
    """The files of dropped Iceberg tables of one name."""

    has_metadata = True

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table)
        self.title = f"Dropped Iceberg tables of the name {table}"
        self.name = request.of(self.title)

    def require(self) -> None:
        """Raise ConnectorError if the IDs are not valid for the column's type."""
        if self.folders and self._columns:
            _ = self._ids

    def columns(self) -> tuple[Field, ...]:
        """Return the column as in the table's rows."""
        return with_zone_of(self.request.types.get(self.table), super().columns())

    @cached_property
    def folders(self) -> Sequence[str]:
        """Return the folders of that name, except those that overlap the location of a present table."""
        config, catalog = self.request.config, self.request.catalog
        saved = saved_schema(self.table, self.request)
        named = {saved["files"].rstrip("/")} if saved.get("files") else set[str]()
        if (stream := stream_of(self.table, None, self.request)) is not None:
            named.add(TableLocation.of(config, stream, self.table, TableNaming.of(config).naming).folder)
        found = [each.glue_table for each in catalog.tables(self.table.database)]
        present = [f"{each.get('StorageDescriptor', {}).get('Location', '').rstrip('/')}/" for each in found]
        left = [
            folder
            for folder in named
            if folder.startswith(config.uri(""))
            and not any(each.startswith(f"{folder}/") or f"{folder}/".startswith(each) for each in present)
        ]
        if self.request.mask is not None:
            self.request.mask.dropped |= {*left}
        return outermost(left)

    def takes(self, uri: str) -> bool:
        """Return whether an object is a data file."""
        return super().takes(uri) and uri.endswith(".parquet")

    def find(self) -> Iterator[ErasedObject]:
        """Yield the files with rows of the IDs, and manifests that reveal an ID."""
        yield from super().find()
        for uri in self._revealing_objects():
            yield ErasedObject(uri, -1, reason="metadata of a dropped table")

    def erase(self) -> Iterator[ErasedObject]:
        """Rewrite files without the rows, and delete manifests that reveal an ID."""
        yield from super().erase()
        for uri in self._revealing_objects():
            delete(self.access.client("s3"), uri)
            yield ErasedObject(uri, -1, -1, "removed")

    def conclude(self) -> bool:
        """Do nothing: no sync writes to a dropped table."""
        return True

    def tells(self, stored: StoredObject) -> bool:
        """Return whether an object is a manifest that reveals an ID."""
        if not self._columns or not stored.uri.endswith(".avro"):
            return False
        return tells_in(get(self.access.client("s3"), stored.uri, version=stored.version), self._types, self._ids)

    def _revealing_objects(self) -> list[str]:
        return [each.uri for folder in self.folders for each in stored_in(self.access, folder) if self.tells(each)]

    @cached_property
    def _types(self) -> Sequence[IcebergType]:
        wide = [each.type for each in self._columns]
        narrow = [type_ for type_, wider in WIDER.items() if wider in wide]
        return [iceberg_type(each, count().__next__) for each in (*wide, *narrow)]
