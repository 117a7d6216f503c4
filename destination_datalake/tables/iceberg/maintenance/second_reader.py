"""The second reader of a table's references, which shares no code with the first reader.

The first reader uses PyIceberg. Maintenance deletes files only if the first reader has found every object that the
second reader finds. So a defect in one reader cannot cause the deletion of live files. The second reader requests every
object from S3, without a cache. It reads metadata files as JSON, and reads manifest lists and manifests with fastavro,
by field ID.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import count
from typing import IO, TYPE_CHECKING, Any

import fastavro
import msgspec
import zstandard
from botocore.exceptions import BotoCoreError

from destination_datalake.aws.objects import S3Address, is_missing, retry_on

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


_GZIP = b"\x1f\x8b"

# Avro spec: Object Container Files.
_MARKER = {"type": "fixed", "name": "marker", "size": 16}
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "metadata", "type": {"type": "map", "values": "bytes"}},
            {"name": "marker", "type": _MARKER},
        ],
    }
)
_BLOCK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "block",
        "fields": [
            {"name": "entries", "type": "long"},
            {"name": "content", "type": "bytes"},
            {"name": "marker", "type": _MARKER},
        ],
    }
)
_MAX_BYTES = 256 * 1024 * 1024
"""Maximum size after decompression, in bytes, of a metadata file or of one block of an Avro file."""

_CODECS: Mapping[str, Callable[[bytes], IO[bytes]]] = {
    "null": io.BytesIO,
    "deflate": lambda content: _inflated(content),
    "zstandard": lambda content: zstandard.ZstdDecompressor().stream_reader(content),
    "bzip2": lambda content: bz2.BZ2File(io.BytesIO(content)),
}

# Field IDs (Iceberg spec: Manifest Lists, Manifests).
_PATH_OF_MANIFEST, _SEQUENCE_OF_MANIFEST = 500, 515
_STATUS, _FILE, _PATH_OF_FILE = 0, 2, 100
_LIVE, _DELETED = (0, 1), 2


class Disagreement(Exception):
    """Raised if the second reader of a table's references contradicts the first one, so no file may be deleted.

    The second reader has found an object that the first reader did not find, or cannot read an object completely.
    """


class Snapshot(msgspec.Struct, rename="kebab"):
    """A snapshot in a metadata file. In tables of format version 1, the sequence number is 0."""

    snapshot_id: int
    manifest_list: str
    sequence_number: int = 0


class _Ref(msgspec.Struct, rename="kebab"):
    snapshot_id: int


class _Statistics(msgspec.Struct, rename="kebab"):
    statistics_path: str


class _Logged(msgspec.Struct, rename="kebab"):
    metadata_file: str


class Metadata(msgspec.Struct, rename="kebab"):
    """The fields of a metadata file that refer to other objects (Iceberg spec: Table Metadata Fields)."""

    snapshots: list[Snapshot] | None = None
    refs: dict[str, _Ref] | None = None
    metadata_log: list[_Logged] | None = None
    statistics: list[_Statistics] | None = None
    partition_statistics: list[_Statistics] | None = None

    @property
    def objects(self) -> list[str]:
        """The paths of the former metadata files in the metadata log, and of all statistics files."""
        statistics = [*(self.statistics or ()), *(self.partition_statistics or ())]
        return [
            *(entry.metadata_file for entry in self.metadata_log or ()),
            *(statistic.statistics_path for statistic in statistics),
        ]


_METADATA = msgspec.json.Decoder(Metadata)


class SecondReader:
    """Reads the references in metadata files, manifest lists and manifests. Thread-safe.

    Methods raise Disagreement if an object cannot be read completely, FileNotFoundError if an object is missing, and
    botocore's exceptions.
    """

    def __init__(self, s3: S3Client) -> None:
        self._s3 = s3

    def metadata(self, path: str) -> Metadata:
        """Return the references in a metadata file.

        Raises Disagreement if a branch or tag refers to a snapshot that the file does not contain.
        """
        content = self._content(path)
        try:
            if content[:2] == _GZIP:
                content = _bounded(gzip.GzipFile(fileobj=io.BytesIO(content)))
            metadata = _METADATA.decode(content)
        except (msgspec.MsgspecError, OSError, EOFError, ValueError, zlib.error) as error:
            raise Disagreement(f"{path} cannot be read by the second reader: {error}") from error
        snapshot_ids = {snapshot.snapshot_id for snapshot in metadata.snapshots or ()}
        for name, ref in (metadata.refs or {}).items():
            if ref.snapshot_id not in snapshot_ids:
                raise Disagreement(
                    f"{path} contains no snapshot {ref.snapshot_id}, to which the branch or tag {name} refers"
                )
        return metadata

    def manifests(self, manifest_list: str) -> list[tuple[str, int]]:
        """Return the path and the sequence number of each manifest in a manifest list.

        In tables of format version 1, all sequence numbers are 0.
        """
        path, sequence = f"f{_PATH_OF_MANIFEST}", f"f{_SEQUENCE_OF_MANIFEST}"
        wanted = {_PATH_OF_MANIFEST: None, _SEQUENCE_OF_MANIFEST: None}
        return [(record[path], record.get(sequence) or 0) for record in self._records(manifest_list, wanted)]

    def live_files(self, manifest: str) -> list[str]:
        """Return the paths of the live data files and delete files in a manifest.

        Also raises Disagreement if an entry has an unknown status.
        """
        status, file, path = f"f{_STATUS}", f"f{_FILE}", f"f{_PATH_OF_FILE}"
        live = []
        for record in self._records(manifest, {_STATUS: None, _FILE: {_PATH_OF_FILE: None}}):
            if record[status] in _LIVE:
                live.append(record[file][path])
            elif record[status] != _DELETED:
                raise Disagreement(f"{manifest} contains an entry with the unknown status {record[status]}")
        return live

    def _records(self, path: str, wanted: _Wanted) -> Iterator[Any]:
        content = self._content(path)
        try:
            yield from _records(content, wanted)
        except Disagreement:
            raise
        except Exception as error:  # fastavro raises IndexError, TypeError, StructError and others for invalid files.
            raise Disagreement(f"{path} cannot be read by the second reader: {error!r}") from error

    def _content(self, path: str) -> bytes:
        address = S3Address.parse(path)

        def read() -> bytes:
            try:
                answer = self._s3.get_object(Bucket=address.bucket, Key=address.key)
            except self._s3.exceptions.ClientError as error:
                if is_missing(error, self._s3, str(address)):
                    raise FileNotFoundError(f"{address} does not exist") from error
                raise
            with closing(answer["Body"]) as body:
                content = body.read(_MAX_BYTES + 1)
                if len(content) > _MAX_BYTES:
                    raise Disagreement(f"{path} exceeds the limit of {_MAX_BYTES:,} bytes")
                # Only a read up to the end detects a truncated response.
                return content + body.read()

        return retry_on(BotoCoreError, read)


_Wanted = Mapping[int, Any]
"""The fields to read, by field ID. For a nested record, the value is another mapping of this kind, otherwise None."""


def _records(content: bytes, wanted: _Wanted) -> Iterator[Any]:
    """Yield the records of an Avro file with only the wanted fields. A field with the ID 500 has the key `f500`.

    Raises ValueError and other exceptions if the file is invalid or incomplete.
    """
    file = io.BytesIO(content)
    header: Any = fastavro.schemaless_reader(file, _HEADER, None)
    if header["magic"] != b"Obj\x01":
        raise ValueError("it is not an Avro file")
    schema = _named_by_id(json.loads(header["metadata"]["avro.schema"]))
    # fastavro skips fields that the reader's schema lacks.
    writer, reader = fastavro.parse_schema(schema), fastavro.parse_schema(_projected(schema, wanted))
    decompress = _CODECS[header["metadata"].get("avro.codec", b"null").decode()]
    while file.tell() < len(content):
        block: Any = fastavro.schemaless_reader(file, _BLOCK, None)
        if block["marker"] != header["marker"] or block["entries"] < 0:
            raise ValueError("a block does not end with the file's marker")
        entries = io.BytesIO(_bounded(decompress(block["content"])))
        for _ in range(block["entries"]):
            yield fastavro.schemaless_reader(entries, writer, reader)
        # With a damaged length or a wrong schema, entries would be lost without an error.
        if unread_bytes := len(entries.getvalue()) - entries.tell():
            raise ValueError(f"{unread_bytes} bytes of a block belong to no entry")


def _inflated(content: bytes) -> IO[bytes]:
    # Avro's deflate codec has no zlib header, so the window size is negative (Avro spec: Required Codecs).
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    whole = inflate.decompress(content, _MAX_BYTES + 1)
    if not inflate.eof and len(whole) <= _MAX_BYTES:
        raise EOFError("a block ends too early")
    return io.BytesIO(whole)


def _bounded(content: IO[bytes] | gzip.GzipFile) -> bytes:
    """Return the whole content of a decompressing stream.

    Raises ValueError if the content is larger than 256 MiB, and errors from decompression.
    """
    whole = bytearray()
    while chunk := content.read(64 * 1024):
        whole += chunk
        if len(whole) > _MAX_BYTES:
            raise ValueError(f"its content exceeds the limit of {_MAX_BYTES:,} bytes after decompression")
    return bytes(whole)


def _named_by_id(schema: Any) -> Any:
    """Return an equivalent Avro schema that names each field by its field ID, and that has no logical types.

    fastavro rejects the schemas of some writers. Their schemas contain field names that Avro does not permit, or repeat
    the definition of a type, for example a decimal, where Avro requires the name of the type.
    """
    known: dict[str, Any] = {}
    numbers = count()

    def translated(type_: Any) -> Any:
        match type_:
            case str():
                return translated(known[type_]) if type_ in known else type_
            case list():
                return [translated(member) for member in type_]
            case {"type": "record", "fields": fields}:
                known[type_.get("name", "")] = type_
                named = [
                    {"name": f"f{field.get('field-id', f'_{number}')}", "type": translated(field["type"])}
                    for number, field in enumerate(fields)
                ]
                return {"type": "record", "name": f"t{next(numbers)}", "fields": named}
            case {"type": "fixed", "size": size}:
                known[type_.get("name", "")] = type_
                return {"type": "fixed", "name": f"t{next(numbers)}", "size": size}
            case {"type": "array", "items": items}:
                return {"type": "array", "items": translated(items)}
            case {"type": "map", "values": values}:
                return {"type": "map", "values": translated(values)}
            case {"type": inner}:
                return translated(inner)
        raise ValueError(f"its schema contains the unknown type {type_!r}")

    return translated(schema)


def _projected(record: Any, wanted: _Wanted) -> Any:
    """Return the schema of a record, with only the wanted fields."""
    ids = {f"f{id_}": within for id_, within in wanted.items()}
    fields = [
        {
            **field,
            "type": field["type"] if (within := ids[field["name"]]) is None else _projected(field["type"], within),
        }
        for field in record["fields"]
        if field["name"] in ids
    ]
    return {**record, "fields": fields}
