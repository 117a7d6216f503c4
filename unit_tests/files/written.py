"""Data files as their writers leave them in S3."""

from __future__ import annotations

import pyarrow as pa

from destination_datalake.aws.objects import Upload
from destination_datalake.files.plan import FileFormat
from destination_datalake.files.unit_files import opener
from unit_tests.cloud import BUCKET, Cloud

NESTED = pa.struct([("a", pa.int64()), ("tags", pa.list_(pa.field("element", pa.struct([("x", pa.string())]))))])
"""A struct with a list of structs."""


def written(cloud: Cloud, format: FileFormat, codec: str, *tables: pa.Table) -> tuple[bytes, bytes]:
    """The object and the footer that writing these tables made."""
    upload = Upload(cloud.access.client("s3"), f"s3://{BUCKET}/file", deferred=False)
    writer = opener(format, codec, tables[0].schema)(upload)
    for table in tables:
        writer.write(table)
    footer = writer.close()
    upload.close()
    content = cloud.objects()["file"]
    assert upload.written == len(content)
    return content, footer
