"""All code that uses private names of PyIceberg, except for PyIceberg's Glue catalog.

`tables/glue/compare_and_set.py` uses the private methods of the Glue catalog. PyIceberg has no public API to add a
snapshot with delete files or with files of several partition specs, or to read all fields of manifests. If a release of
PyIceberg changes one of the private names, `test_pyiceberg_internals.py` fails and reports what to do.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from bz2 import BZ2Decompressor
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from io import BytesIO
from struct import Struct
from typing import IO, Any, Self, TypeVar, cast
from zlib import MAX_WBITS, decompressobj

import pyiceberg.manifest
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import SYNC_SIZE, AvroFile, Block
from pyiceberg.avro.reader import DoubleReader, Reader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor, resolve_reader
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
    PartitionFieldSummary,
    _inherit_from_manifest,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT, Record, TableVersion
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    NestedField,
    StructType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion
from zstandard import ZstdDecompressor

from destination_datalake.aws.objects import MAX_FILE_BYTES, OversizedFile

_Entry = TypeVar("_Entry", bound=Record)
_DOUBLE = Struct("<d")
_REFERENCED_DATA_FILE = 143
_REFERENCED = next(field for field in DATA_FILE_TYPE[3].fields if field.field_id == _REFERENCED_DATA_FILE)
_DELETE_FILE_TYPE = StructType(*DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields, _REFERENCED)
"""The type of the data file field in manifests of delete files.

PyIceberg's type for format version 2 lacks the optional field `referenced_data_file` (Iceberg spec: Data File Fields).
"""

_EQUALITY = NestedField(135, "equality_ids", ListType(136, IntegerType(), element_required=True), required=False)
"""The manifest field with the field IDs by which equality deletes match rows (Iceberg spec: Data File Fields).

Iceberg's Java library expects a list of int, but PyIceberg's own type is a list of long.
"""

_ENTRY_SCHEMAS = {
    content: manifest_entry_schema_with_data_file(DEFAULT_READ_VERSION, type_)
    for content, type_ in (
        (ManifestContent.DATA, DATA_FILE_TYPE[DEFAULT_READ_VERSION]),
        (ManifestContent.DELETES, _DELETE_FILE_TYPE),
    )
}


# --- snapshots --------------------------------------------------------------------------------------------------------


class SnapshotProducer(_SnapshotProducer[Any]):
    """Adds one snapshot to a branch. The end of the `with` block adds the snapshot to the transaction.

    Subclasses define the manifests of the snapshot. This class does not use PyIceberg's conflict checks, because they
    belong to PyIceberg's own retries.
    """

    def __init__(
        self,
        operation: Operation,
        branch: str,
        table: Table,
        transaction: Transaction,
        properties: Mapping[str, str] = EMPTY_DICT,
    ) -> None:
        super().__init__(operation, transaction, table.io, None, dict(properties), branch)

    @abstractmethod
    def manifests(self) -> list[ManifestFile]:
        """Return the manifests of the snapshot, in the order in which the manifest list contains them."""

    @abstractmethod
    def summary(self, previous: Mapping[str, str] | None) -> Summary:
        """Return the summary of the snapshot. `previous` is the summary of the branch's present head, or None."""

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata with all changes of the transaction so far."""
        return self._transaction.table_metadata

    @property
    def io(self) -> FileIO:
        """The FileIO for reading and writing the table's metadata."""
        return self._io

    @property
    def written_manifests(self) -> list[str]:
        """The paths of the manifests that have been written for this snapshot.

        If the commit fails, PyIceberg deletes these manifests.
        """
        return self._written_manifests

    def written(self, content: ManifestContent, spec_id: int, entries: Iterable[ManifestEntry]) -> ManifestFile:
        """Write a manifest with the given entries, and return the manifest.

        There must be at least one entry. All entries must be of data files or all of delete files, as `content` says,
        and of the partition spec `spec_id`.
        """
        spec = self.spec(spec_id)
        if content == ManifestContent.DELETES:
            output = self.new_manifest_output()
            writer: ManifestWriter = _DeletesWriter(spec, self.schema(), output, self.snapshot_id, self._compression)
        else:
            writer = self.new_manifest_writer(spec)
        with writer:
            for entry in entries:
                writer.add_entry(entry)
        manifest = writer.to_manifest_file()
        if manifest.partitions:
            types = (field.field_type for field in spec.partition_type(self.schema()).fields)
            manifest.partitions[:] = map(_with_both_zeros, manifest.partitions, types)
        return manifest

    def previous(self) -> Snapshot | None:
        """Return the present head of the branch, or None if the branch does not exist."""
        return self.metadata.snapshot_by_name(self._target_branch)

    def _manifests(self) -> list[ManifestFile]:
        return self.manifests()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        previous = self.previous()
        summary = self.summary(previous.summary if previous is not None else None)
        return Summary(summary.operation, **summary.additional_properties, **snapshot_properties)

    def _validate_concurrency(self) -> None:
        pass

    def _existing_manifests(self) -> list[ManifestFile]:
        raise NotImplementedError

    def _deleted_entries(self) -> list[ManifestEntry]:
        raise NotImplementedError


def _with_both_zeros(summary: PartitionFieldSummary, type_: IcebergType) -> PartitionFieldSummary:
    """Return the summary with a lower bound of 0.0 replaced by -0.0, and an upper bound of -0.0 replaced by 0.0.

    Engines order -0.0 before 0.0 (Iceberg spec: Data File Fields, note 3). PyIceberg treats both zeros as equal, so it
    uses the first zero that it reads for both bounds. Wider bounds are safe, because bounds need not be tight.
    """
    if not isinstance(type_, FloatType | DoubleType):
        return summary
    lower, upper = summary.lower_bound, summary.upper_bound
    zero, negative = to_bytes(type_, 0.0), to_bytes(type_, -0.0)
    bounds = negative if lower == zero else lower, zero if upper == negative else upper
    return PartitionFieldSummary(summary.contains_null, summary.contains_nan, *bounds)


def summary_of(
    operation: Operation,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    counts: Mapping[str, str],
    previous: Mapping[str, str] | None,
) -> Summary:
    """Return the summary of a snapshot: the numbers of added and removed files and rows, and the new totals.

    `counts` contains more entries for the summary. `previous` is the summary of the parent snapshot.
    """
    # Update the metrics directly, because `collector.add_file` requires one spec for all partitions.
    collector = SnapshotSummaryCollector()
    for file in added:
        collector.metrics.add_file(file)
    for file in removed:
        collector.metrics.remove_file(file)
    # PyIceberg rejects summaries of the operation `replace`.
    summed = update_snapshot_summaries(Summary(Operation.OVERWRITE, **collector.build(), **counts), previous)
    return Summary(operation, **summed.additional_properties)


class _DeletesWriter(ManifestWriterV2):
    """Writes a manifest of delete files, which PyIceberg's own writer does not support."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def _with_partition(self, format_version: TableVersion) -> Schema:
        type_ = data_file_with_partition(self._spec.partition_type(self._schema), format_version)
        fields = (_EQUALITY if field.field_id == _EQUALITY.field_id else field for field in type_.fields)
        return manifest_entry_schema_with_data_file(format_version, StructType(*fields, _REFERENCED))

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        # Entries that PyIceberg's own type describes lack the last field. The encoder expects a value for each field.
        missing = len(_DELETE_FILE_TYPE.fields) - len(entry.data_file)
        if missing:
            file = DataFile(*entry.data_file._data, *[None] * missing)
            entry = ManifestEntry(*entry._data[:-1], file)
        return super().prepare_entry(entry)


# --- manifests and their entries --------------------------------------------------------------------------------------


def manifest_entries(manifest: ManifestFile, io: FileIO) -> Iterator[ManifestEntry]:
    """Yield the live entries of a manifest, with the values that the entries inherit from the manifest.

    Unlike `ManifestFile.fetch_manifest_entry`, this function reads doubles exactly, and reads the field
    `referenced_data_file`.
    """
    with _ManifestReader(manifest, io) as entries:
        for entry in entries:
            # A deleted entry only records that its snapshot has removed the file (Iceberg spec: Manifests).
            if entry.status != ManifestEntryStatus.DELETED:
                yield _inherit_from_manifest(entry, manifest)


def deleted_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return the entries of a manifest that have the status deleted: entries of files that a snapshot has removed."""
    with _ManifestReader(manifest, io) as entries:
        return [
            _inherit_from_manifest(entry, manifest) for entry in entries if entry.status == ManifestEntryStatus.DELETED
        ]


def delete_file(**arguments: Any) -> DataFile:
    """Return the manifest entry of a delete file.

    Accepts the same arguments as `DataFile.from_args`, and also `referenced_data_file`.
    """
    return DataFile._bind(_DELETE_FILE_TYPE, **arguments)


def referenced_data_file(file: DataFile) -> str | None:
    """Return the value of the field `referenced_data_file` in the entry of a delete file, or None without a value.

    The value is the path of the only data file to which the delete file applies.
    """
    return file[len(_DELETE_FILE_TYPE.fields) - 1] if len(file) == len(_DELETE_FILE_TYPE.fields) else None


class _WholeFile(AvroFile[_Entry]):
    """A reader for an Avro file that checks that the file is complete.

    PyIceberg's own class stops at an incomplete block without an error. This class raises ValueError or EOFError if the
    file is incomplete, and OversizedFile if the file is too large after decompression.
    """

    _bytes = 0
    _block_size = 0
    _unpacked = 0

    def __enter__(self) -> Self:
        with self.input_file.open() as source:
            content = source.read()
        # The compiled decoder may read beyond the end of its buffer, so use it only for complete blocks.
        self.decoder, self._bytes = StreamingBinaryDecoder(content), len(content)
        self.header = self._read_header()
        if (schema := self.header.meta.get("avro.schema")) is None:
            raise ValueError("it contains no schema")
        self.reader = self._entry_reader(schema)
        return self

    def _entry_reader(self, schema: str) -> Reader:
        assert self.read_schema is not None
        present = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
        return resolve_reader(present, self.read_schema, self.read_types, self.read_enums)

    def __next__(self) -> _Entry:
        while self.block is None or not self.block.has_next():
            if self.block is not None:
                self._end_block(self.block)
            if self.decoder.tell() == self._bytes:
                raise StopIteration
            records, content = self.decoder.read_int(), self._decompressed(self.decoder.read_bytes())
            self.block, self._block_size = Block(self.reader, records, new_decoder(content)), len(content)
        return next(self.block)

    def _end_block(self, block: Block[_Entry]) -> None:
        if (consumed := block.block_decoder.tell()) != self._block_size:
            raise ValueError(f"its entries use {consumed} bytes of a block of {self._block_size} bytes")
        if self.decoder.read(SYNC_SIZE) != self.header.sync:
            raise ValueError("a block does not end with the file's marker")

    def _decompressed(self, content: bytes) -> bytes:
        limit = MAX_FILE_BYTES - self._unpacked
        match self.header.meta.get("avro.codec", "null"):
            case "deflate" | "bzip2" as codec:
                # Avro's deflate codec has no zlib header, so the window size is negative (Avro spec: Required Codecs).
                # One byte more than the limit shows that the limit is exceeded, without unpacking the rest of a
                # decompression bomb.
                unpack = decompressobj(-MAX_WBITS) if codec == "deflate" else BZ2Decompressor()
                content = unpack.decompress(content, limit + 1)
                if not unpack.eof and len(content) <= limit:
                    raise EOFError("a block ends too early")
            case "zstandard":
                content = b"".join(_chunks(ZstdDecompressor().stream_reader(content), limit))
            case "null":
                pass
            case codec:
                raise ValueError(f"its codec is {codec}, which is not supported")
        self._unpacked += len(content)
        if len(content) > limit:
            raise OversizedFile(self.input_file.location, MAX_FILE_BYTES)
        return content


def _chunks(reader: IO[bytes], limit: int) -> Iterator[bytes]:
    """Yield the content of a reader in chunks, and stop as soon as the total size exceeds `limit` bytes."""
    while limit >= 0 and (chunk := reader.read(_CHUNK)):
        limit -= len(chunk)
        yield chunk


_CHUNK = 64 * 1024

# PyIceberg reads manifest lists with its own AvroFile class, which no parameter can replace.
vars(pyiceberg.manifest)["AvroFile"] = _WholeFile


class _ManifestReader(_WholeFile[ManifestEntry]):
    def __init__(self, manifest: ManifestFile, io: FileIO) -> None:
        super().__init__(io.new_input(manifest.manifest_path))
        self._manifest_content = manifest.content

    def _entry_reader(self, schema: str) -> Reader:
        return _entry_reader(schema, self._manifest_content)


class ManifestContents(_WholeFile[ManifestEntry | ManifestFile]):
    """The entries of a manifest, or the manifests in a manifest list.

    The caller need not know which of the two kinds of file `content` is. `location` appears only in messages. Raises
    ValueError and other exceptions if the file is invalid or of another kind.
    """

    def __init__(self, content: bytes, location: str) -> None:
        super().__init__(_BytesInputFile(content, location))

    def _entry_reader(self, schema: str) -> Reader:
        present = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
        if _DATA_FILE in {field.field_id for field in present.fields}:
            return _entry_reader(schema, ManifestContent.DATA)
        read_types: dict[int, Callable[..., Any]] = {-1: ManifestFile, 508: PartitionFieldSummary}
        list_schema = MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]
        return resolve_reader(present, list_schema, read_types, {517: ManifestContent})


_DATA_FILE = 2
"""The field ID of the data file in a manifest entry."""


class _BytesInputFile(InputFile):
    def __init__(self, content: bytes, location: str) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        return cast("InputStream", BytesIO(self._content))


@lru_cache(64)
def _entry_reader(schema: str, content: ManifestContent) -> Reader:
    """Return a reader for manifest entries with this Avro schema.

    This function caches readers, because the creation of a reader takes longer than reading a small manifest.
    """
    # The keys are field IDs, and -1 is the root, as in PyIceberg's own reader of manifests.
    enums: dict[int, Callable[..., Enum]] = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
    resolver: Any = _Resolver({-1: ManifestEntry, 2: DataFile}, enums)
    present = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    reader: Reader = visit_with_partner(present, _ENTRY_SCHEMAS[content], resolver, SchemaPartnerAccessor())
    return reader


class _Resolver(ReadSchemaResolver):
    def visit_double(self, double_type: DoubleType, partner: IcebergType | None) -> Reader:  # noqa: ARG002
        return _ExactDoubleReader()  # type: ignore[no-untyped-call]


class _ExactDoubleReader(DoubleReader):
    """Reads doubles exactly, because PyIceberg's compiled decoder rounds them to floats."""

    def read(self, decoder: BinaryDecoder) -> float:
        value: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
        return value


# --- metadata ---------------------------------------------------------------------------------------------------------


class OpenTransaction(Transaction):
    """A PyIceberg transaction that exposes its updates and requirements, and can replace the requirements."""

    @property
    def requirements(self) -> tuple[TableRequirement, ...]:
        """The requirements that the catalog must check before it commits the transaction."""
        return self._requirements

    @property
    def base(self) -> TableMetadata:
        """The table's metadata before the transaction."""
        return self._table.metadata

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """All updates of the transaction so far."""
        return self._updates

    def require(self, requirements: tuple[TableRequirement, ...]) -> None:
        """Replace the requirements of the commit.

        If a transaction changes several branches, PyIceberg's own requirements cover only one of them.
        """
        self._requirements = requirements


def apply(transaction: Transaction, updates: tuple[TableUpdate, ...]) -> None:
    """Add metadata updates to a transaction. Use this function if no method of `Transaction` adds such an update."""
    transaction._apply(updates, ())


def with_updates(
    base: TableMetadata, updates: tuple[TableUpdate, ...], metadata_location: str | None = None
) -> TableMetadata:
    """Return the metadata `base` with the updates applied, like PyIceberg's `update_table_metadata`.

    The result shares unchanged parts with `base`. `metadata_location` is the location of `base`. If the updates change
    anything and `metadata_location` is not None, the metadata log of the result contains this location.
    """
    context, metadata = _TableMetadataUpdateContext(), base
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    if context.has_changes() and metadata_location is not None:
        metadata = _update_table_metadata_log(metadata, metadata_location, base.last_updated_ms)
    # Every metadata file must update this field (Iceberg spec: Table Metadata Fields). New snapshots set it, but other
    # updates do not.
    if context.has_changes() and metadata.last_updated_ms == base.last_updated_ms:
        metadata = metadata.model_copy(update={"last_updated_ms": time.time_ns() // 1_000_000})
    return metadata
