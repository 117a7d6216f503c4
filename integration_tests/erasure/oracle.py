"""The judge of erasures: reads every object of a bucket, with its former versions, and looks for ids in all of it.

It shares no code with the connector. Parquet files are read whole, with the statistics in their footers; Avro files
with the bounds of manifests; everything else as bytes, after gzip if it is that.
"""

import base64
import gzip
import io
import re
import struct
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Id = str | int


def objects_with(s3: "S3Client", bucket: str, ids: Collection[Id]) -> dict[str, list[Id]]:
    """Return the objects that have one of the ids anywhere, with those: by key, and version if it is a former one."""
    wanted = Wanted(ids)
    ids_by_object = {}
    for name, _, content in _contents(s3, bucket):
        if hits := wanted.within(name.rpartition("?")[0] or name, content):
            ids_by_object[name] = sorted(hits, key=str)
    return ids_by_object


class Wanted:
    """Ids, as values and as Iceberg and texts write them."""

    def __init__(self, ids: Collection[Id]) -> None:
        self.ids = {*ids}
        self._packed: dict[bytes, Id] = {}
        for id_ in ids:
            if isinstance(id_, int):
                self._packed[struct.pack("<q", id_)] = id_
                if -(2**31) <= id_ < 2**31:
                    self._packed[struct.pack("<i", id_)] = id_
            else:
                self._packed[id_.encode()] = id_

    def within(self, key: str, content: bytes) -> set[Id]:
        hits = {id_ for id_ in self.ids if str(id_) in key}
        if content[:4] == b"PAR1":
            return hits | self._matches(_parquet(content))
        if content[:4] == b"Obj\x01":
            return hits | self._matches(_flat([*fastavro.reader(io.BytesIO(content))]))
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        decoded = [base64.b64decode(encoded) for encoded in re.findall(rb'"rawData":"([A-Za-z0-9+/=]+)"', content)]
        return hits | {id_ for id_ in self.ids if any(str(id_).encode() in text for text in (content, *decoded))}

    def _matches(self, values: Iterator[Any]) -> set[Id]:
        matches: set[Id] = set()
        for value in values:
            match value:
                case bytes():
                    if (packed := self._packed.get(value)) is not None:
                        matches.add(packed)
                case str():
                    if value in self.ids:
                        matches.add(value)
                    elif "/" in value or "{" in value:  # Paths, and JSON texts.
                        matches |= {id_ for id_ in self.ids if str(id_) in value}
                case bool() | None:
                    pass
                case int() if value in self.ids:
                    matches.add(value)
        return matches


def _parquet(content: bytes) -> Iterator[Any]:
    file = pq.ParquetFile(io.BytesIO(content))
    for batch in file.iter_batches():
        for column in batch.columns:
            yield from _flat(column.to_pylist())
    for group in range(file.num_row_groups):
        for place in range(file.metadata.num_columns):
            statistics = file.metadata.row_group(group).column(place).statistics
            if statistics is not None and statistics.has_min_max:
                yield from (statistics.min, statistics.max)


def _flat(value: Any) -> Iterator[Any]:
    match value:
        case dict():
            for part in value.values():
                yield from _flat(part)
        case list() | tuple():
            for part in value:
                yield from _flat(part)
        case _:
            yield value


def traces(s3: "S3Client", bucket: str, needle: str) -> list[str]:
    """Return the keys of all objects, versions and delete markers that have a text, as a word, anywhere."""
    pattern = re.compile(rf"(?<![0-9A-Za-z]){re.escape(needle)}(?![0-9A-Za-z])")
    return [
        name.rpartition("?")[0] or name
        for name, metadata, content in _contents(s3, bucket)
        if any(pattern.search(text) for text in (name, metadata, *_texts_of(content)))
    ]


def _texts_of(body: bytes) -> Iterator[str]:
    """Yield all that an object says: rows and statistics of Parquet files, lines decompressed, records in base64."""
    if body.startswith(b"PAR1"):
        file = pq.ParquetFile(io.BytesIO(body))
        yield from map(str, file.read().to_pylist())
        yield str(file.metadata.to_dict())
        return
    text = (gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body).decode("utf-8", "replace")
    yield text
    for encoded in re.findall(r'"rawData":"([A-Za-z0-9+/=]+)"', text):
        yield base64.b64decode(encoded).decode("utf-8", "replace")


def _contents(s3: "S3Client", bucket: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield every object, former version and delete marker: key (of former ones with "?" and the version), metadata
    and content.
    """
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for version in page.get("Versions", []):
            named: dict[str, Any] = {} if version["VersionId"] == "null" else {"VersionId": version["VersionId"]}
            answer = s3.get_object(Bucket=bucket, Key=version["Key"], **named)
            name = version["Key"] if version["IsLatest"] else f"{version['Key']}?{version['VersionId']}"
            yield name, str(answer["Metadata"]), answer["Body"].read()
        for marker in page.get("DeleteMarkers", []):
            yield f"{marker['Key']}?{marker['VersionId']}", "", b""
