"""How large the values of columns are in memory, by the footer of one of the files that have them."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

TAIL_BYTES = 256 * 1024
"""So many bytes at the end of a file mostly have its footer."""


def expansion(tail: bytes, ids: Collection[int]) -> float:
    """Return how many times as many bytes as in a file its top-level columns with these ids have before compression.

    `tail` are the last bytes of the file. It is 1 if it has none of the columns. Raises Arrow's errors for what is no
    Parquet file, or has a larger footer.
    """
    footer = pq.read_metadata(pa.BufferReader(tail))
    wanted = {str(id_).encode() for id_ in ids}
    schema = footer.schema.to_arrow_schema()
    names = {field.name for field in schema if (field.metadata or {}).get(b"PARQUET:field_id") in wanted}
    stored = values = 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema in names:
                stored += chunk.total_compressed_size
                values += chunk.total_uncompressed_size
    return values / stored if stored else 1.0
