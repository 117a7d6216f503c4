"""Files that are searched for rows with ids, and are gone by then."""

from __future__ import annotations

import pyarrow as pa

from destination_datalake.files.locate import UNKNOWN_ROWS, Located, locate, locate_tasks
from destination_datalake.files.plan import SourceFile
from unit_tests.cloud import BUCKET, Cloud

ID = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})


def test_file_that_is_gone_is_missing_where_s3_answers_403(cloud: Cloud) -> None:
    gone = SourceFile(f"s3://{BUCKET}/folder/gone.parquet", 10, UNKNOWN_ROWS)

    with cloud.refusing("GetObject"):
        [found] = locate(locate_tasks([gone], ID, ("id",), cloud.access, 1))

    assert found == Located({}, missing=(gone.uri,))
