"""The paths in manifest lists and manifests, read completely or not at all.

What seems not to be referred to is deleted, so a file that ends too early must not be taken for a shorter one.
PyIceberg's reader ends at an incomplete or empty Avro block without an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor
from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType, StructType

# Iceberg spec: Manifest lists, Manifests. Only these fields are decoded.
_MANIFEST_LIST = Schema(
    NestedField(500, "manifest_path", StringType(), required=True),
    NestedField(501, "manifest_length", LongType(), required=True),
    NestedField(504, "added_files_count", IntegerType(), required=False),
    NestedField(505, "existing_files_count", IntegerType(), required=False),
)
_MANIFEST = Schema(
    NestedField(0, "status", IntegerType(), required=True),
    NestedField(
        2,
        "data_file",
        StructType(
            NestedField(100, "file_path", StringType(), required=True),
            NestedField(104, "file_size_in_bytes", LongType(), required=True),
        ),
        required=True,
    ),
)


class Incomplete(Exception):
    """A manifest or manifest list ends too early, or has other entries than its snapshot says."""


class File(NamedTuple):
    """An object that metadata refers to, with its size in bytes."""

    path: str
    size: int


class Manifest(NamedTuple):
    """A manifest as a manifest list has it. `live` is the number of its live files; None in old tables."""

    path: str
    size: int
    live: int | None


def manifests_of(manifest_list: str, io: FileIO) -> list[Manifest]:
    """Return the manifests in a manifest list. Raises Incomplete, FileNotFoundError, and botocore's exceptions."""
    return [
        Manifest(path, size, None if added is None or existing is None else added + existing)
        for path, size, added, existing in _records(manifest_list, _MANIFEST_LIST, io)
    ]


def live_files(manifest: Manifest, io: FileIO) -> list[File]:
    """Return the live files in a manifest, data files and delete files. Raises as `manifests_of`."""
    entries = _records(manifest.path, _MANIFEST, io)
    live = [File(*file) for status, file in entries if status != ManifestEntryStatus.DELETED]
    if manifest.live is not None and len(live) != manifest.live:
        raise Incomplete(f"{manifest.path} has {len(live)} live files in place of {manifest.live}")
    return live


def _records(path: str, fields: Schema, io: FileIO) -> Iterator[Any]:
    try:
        with _Reader(io.new_input(path), fields) as reader:
            yield from (_values(record) for record in reader)
            complete = reader.is_at_the_end()
    except (EOFError, ResolveError, SystemError, ValueError, zlib.error) as error:
        raise Incomplete(f"{path} cannot be read: {error}") from error
    if not complete:
        raise Incomplete(f"{path} ends too early")


def _values(record: Any) -> Any:
    return tuple(_values(each) if isinstance(each, Record) else each for each in record._data)


class _Reader(AvroFile[Record]):
    """Reads records that must go on to the end of the file."""

    def __enter__(self) -> Self:
        with self.input_file.open() as source:
            self._content = source.read()
        # The compiled decoder reads beyond the end of what it is given: only whole blocks are given to it.
        self.decoder = StreamingBinaryDecoder(self._content)
        self.header = self._read_header()
        if not self._content.endswith(self.header.sync):
            raise EOFError("the last block is incomplete")
        self.schema = self.header.get_schema()
        resolver: Any = ReadSchemaResolver({}, {})
        self.reader = visit_with_partner(self.schema, self.read_schema, resolver, _Skipping())
        return self

    def __next__(self) -> Record:
        try:
            while self.block is None or not self.block.has_next():
                self._read_block()
        except EOFError:
            raise StopIteration from None
        return next(self.block)

    def is_at_the_end(self) -> bool:
        """Whether all blocks were read, with the marker that ends each (Avro spec: Object Container Files)."""
        return self.decoder.tell() == len(self._content)


class _Skipping(SchemaPartnerAccessor):
    """PyIceberg's own cannot skip a field of a file that is a list, a map or a struct."""

    def field_partner(self, partner: IcebergType | None, field_id: int, field_name: str) -> IcebergType | None:
        return super().field_partner(partner, field_id, field_name) if partner is not None else None

    def list_element_partner(self, partner_list: IcebergType | None) -> IcebergType | None:
        return super().list_element_partner(partner_list) if partner_list is not None else None

    def map_key_partner(self, partner_map: IcebergType | None) -> IcebergType | None:
        return super().map_key_partner(partner_map) if partner_map is not None else None

    def map_value_partner(self, partner_map: IcebergType | None) -> IcebergType | None:
        return super().map_value_partner(partner_map) if partner_map is not None else None
