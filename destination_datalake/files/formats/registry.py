"""The formats of data files by their names in a plan of files."""

from __future__ import annotations

from typing import Protocol, assert_never

import pyarrow as pa

from destination_datalake.aws.objects import Upload
from destination_datalake.files.formats.jsonl import JsonLinesFiles
from destination_datalake.files.formats.parquet import ParquetFiles
from destination_datalake.files.plan import FileFormat


class FileWriter(Protocol):
    """Writes one data file."""

    metadata_bytes: int
    """The memory for what the end of the file will say about the rest of it."""

    def write(self, table: pa.Table) -> None:
        """Append rows; every table has the schema that the file was opened with."""

    def write_row_group(self, table: pa.Table, size: int) -> None:
        """Append rows, encoded at once; `size` is the table's bytes. Not to be mixed with `write` in one file."""

    def close(self) -> bytes:
        """Write the rest. Return the Parquet footer; empty for formats that have none. The upload stays open."""


class FileOpener(Protocol):
    """Opens data files of one schema, several at a time if need be."""

    def open(self, upload: Upload) -> FileWriter:
        """Open a file."""

    def close(self) -> None:
        """Release what the files share."""


def opener(format: FileFormat, codec: str, schema: pa.Schema, sample: pa.Table | None = None) -> FileOpener:
    """Return what opens files of this schema. `codec` is a value of the option `format.compression_codec`.

    With a `sample` of their rows, what is chosen by the values is chosen for all files at once.
    """
    match format:
        case "parquet":
            return ParquetFiles(codec, schema, sample)
        case "jsonl":
            return JsonLinesFiles(codec, schema)
        case _:
            assert_never(format)


def extension(format: FileFormat, codec: str) -> str:
    """Return the extension of file names, with its dot."""
    if format == "jsonl":
        return ".jsonl.gz" if codec == "GZIP" else ".jsonl"
    return ".parquet"
