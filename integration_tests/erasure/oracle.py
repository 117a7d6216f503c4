"""Reads every object of a bucket, and every version of it, and tells which of them say something."""

import base64
import gzip
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def traces(s3: "S3Client", bucket: str, needle: str) -> list[str]:
    """Return the keys of all objects, versions and delete markers that have a text, as a word, anywhere."""
    pattern = re.compile(rf"(?<![0-9A-Za-z]){re.escape(needle)}(?![0-9A-Za-z])")
    found = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for version in page.get("Versions", []):
            answer = s3.get_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])
            texts = [version["Key"], str(answer["Metadata"]), *_texts_of(answer["Body"].read())]
            if any(pattern.search(text) for text in texts):
                found.append(version["Key"])
        found += [each["Key"] for each in page.get("DeleteMarkers", []) if pattern.search(each["Key"])]
    return found


def _texts_of(body: bytes) -> Iterator[str]:
    """Yield all that an object says: rows and statistics of Parquet files, lines decompressed, records in base64."""
    if body.startswith(b"PAR1"):
        file = pq.ParquetFile(pa.BufferReader(body))
        yield from map(str, file.read().to_pylist())
        yield str(file.metadata.to_dict())
        return
    text = (gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body).decode("utf-8", "replace")
    yield text
    for encoded in re.findall(r'"rawData":"([A-Za-z0-9+/=]+)"', text):
        yield base64.b64decode(encoded).decode("utf-8", "replace")
