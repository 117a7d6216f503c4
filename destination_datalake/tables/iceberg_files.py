"""Data files as Iceberg's manifests name them, from the footers that their writers sent along."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table.metadata import TableMetadata

from destination_datalake.datafiles import DataFile

_FIELD_ID = b"PARQUET:field_id"


def belongs(file: DataFile, schema: Schema) -> bool:
    """Whether every column in the file is, by its id, the column of that name in the table.

    It is not if somebody dropped or renamed the column after the file was begun: its values would not be found again.
    """
    ids = index_by_name(schema)
    written = footer(file).schema.to_arrow_schema()
    return all(ids.get(path) == id_ for path, id_ in _field_ids(written, ""))


def manifest_entry(file: DataFile, metadata: TableMetadata) -> IcebergFile:
    """Return the manifest's entry for a file. Nothing is read back from S3."""
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer(file),
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.uri,
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(metadata.spec(), schema),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def footer(file: DataFile) -> pq.FileMetaData:
    """Read the footer that the file's writer sent along."""
    return pq.read_metadata(io.BytesIO(file.footer))


def _field_ids(fields: Any, above: str) -> Iterator[tuple[str, int]]:
    """Every field's dotted path and id; `fields` is an Arrow schema or struct type."""
    for field in fields:
        path = f"{above}{field.name}"
        yield path, int((field.metadata or {}).get(_FIELD_ID, -1))
        if pa.types.is_list(field.type):
            yield from _field_ids([field.type.value_field], f"{path}.")
        elif pa.types.is_struct(field.type):
            yield from _field_ids(field.type, f"{path}.")
