"""Files of position deletes for one data file each (Iceberg spec: Position Delete Files; Reserved Field IDs)."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.files.formats.parquet import footer_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from destination_datalake.aws.objects import Upload

PATH_ID = 2147483546
POSITION_ID = 2147483545

_PATHS = pa.dictionary(pa.int32(), pa.string())  # Strings in the file, but not one for each row in memory.
_SCHEMA = pa.schema(
    [
        pa.field("file_path", _PATHS, nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
)
_GROUP_ROWS = 1024 * 1024


def write_position_deletes(path: str, positions: NDArray[np.int64], upload: Upload) -> bytes:
    """Write the positions, which ascend, of dead rows of the data file at `path`; return the footer.

    `path` is exactly that of the table's metadata.
    """
    writer = pq.ParquetWriter(
        cast("IO[Any]", upload),
        _SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=["file_path"],  # type: ignore[arg-type]  # The stubs know no list.
        store_schema=False,
    )
    for start in range(0, len(positions), _GROUP_ROWS):
        part = pa.array(positions[start : start + _GROUP_ROWS])
        paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(part), np.int32), pa.int32()), pa.array([path]))
        writer.write_table(pa.Table.from_arrays([paths, part], schema=_SCHEMA))
    writer.close()
    return footer_of(writer)
