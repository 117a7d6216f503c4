"""The names of data files."""

from __future__ import annotations

import pytest

from destination_datalake.files.formats.registry import extension
from destination_datalake.files.plan import FileFormat


@pytest.mark.parametrize(
    ("format", "codec", "ending"),
    [
        ("parquet", "ZSTD", ".parquet"),
        ("parquet", "GZIP", ".parquet"),
        ("jsonl", "GZIP", ".jsonl.gz"),
        ("jsonl", "UNCOMPRESSED", ".jsonl"),
    ],
)
def test_extension_tells_format_and_compression(format: FileFormat, codec: str, ending: str) -> None:
    assert extension(format, codec) == ending
