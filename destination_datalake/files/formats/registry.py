"""The formats of data files by their names in a plan of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa

from destination_datalake.aws.upload import Upload
from destination_datalake.files.formats.jsonl import JsonLinesFileWriter
from destination_datalake.files.formats.parquet import ParquetFileWriter
from destination_datalake.files.plan import FileFormat


class FileWriter(Protocol):
    """Writes one data file."""

    def write(self, table: pa.Table) -> None:
        """Append rows; every table has the schema that the file was opened with."""

    def close(self) -> bytes:
        """Finish the file. Return its Parquet footer; empty for formats that have none."""


def open_file(format: FileFormat, codec: str, schema: pa.Schema, upload: Upload) -> FileWriter:
    """Open a data file of this schema. `codec` is a value of the option `format.compression_codec`."""
    return _WRITERS[format](codec, schema, upload)


def extension(format: FileFormat, codec: str) -> str:
    """Return the extension of file names, with its dot."""
    if format == "jsonl":
        return ".jsonl.gz" if codec == "GZIP" else ".jsonl"
    return ".parquet"


_WRITERS: Mapping[FileFormat, Callable[[str, pa.Schema, Upload], FileWriter]] = {
    "parquet": ParquetFileWriter,
    "jsonl": JsonLinesFileWriter,
}
