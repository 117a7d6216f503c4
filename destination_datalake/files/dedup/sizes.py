"""How large the values of columns are in memory, by the footer of one of the files that have them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from destination_datalake.files.plan import SourceFile
from destination_datalake.files.reading.parquet import StoredFile, parquet_file

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def expansion(source: SourceFile, ids: Collection[int], s3: S3Client) -> float:
    """Return how many times as many bytes as in a file its top-level columns with these ids have before compression.

    It is 1 if the file has none of them. Raises errors of AWS, and Arrow's for what is no Parquet file.
    """
    file = parquet_file(StoredFile(source, s3))
    wanted = {str(id_).encode() for id_ in ids}
    names = {field.name for field in file.schema_arrow if (field.metadata or {}).get(b"PARQUET:field_id") in wanted}
    stored = values = 0
    for group in map(file.metadata.row_group, range(file.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema in names:
                stored += chunk.total_compressed_size
                values += chunk.total_uncompressed_size
    return values / stored if stored else 1.0
