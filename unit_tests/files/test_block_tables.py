"""The metadata columns: fresh ids, the time of extraction, what was changed, and where the record belongs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from destination_datalake.files.block_tables import metadata_columns, new_first_id, row_ids
from destination_datalake.files.plan import FIRST, FilePlan
from destination_datalake.records.decoded import CHANGES_TYPE, Decoded
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.s3_data_lake import EPOCH_METADATA_COLUMNS

AT = pa.array([1_700_000_000_000_000, 1_700_000_000_000_001], pa.timestamp("us", "UTC"))
CHANGED = [[{"field": "a", "change": "NULLED", "reason": "SOURCE_SERIALIZATION_ERROR"}], []]


def raw_ids(rows: int) -> pa.StringArray:
    return row_ids(new_first_id(FIRST), np.arange(rows))


@pytest.mark.parametrize("rows", [0, 1, 100_000])
def test_each_row_has_a_raw_id(rows: int) -> None:
    ids = raw_ids(rows)

    ids.validate(full=True)
    assert len({*ids.to_pylist()}) == rows
    assert ids.null_count == 0


@pytest.mark.parametrize("changes", [None, pa.array(CHANGED, CHANGES_TYPE)])
@pytest.mark.parametrize(("generation", "sync_id"), [(7, 2**40), (0, 0), (None, None)])
def test_columns_hold_time_changes_and_generation(
    changes: pa.ListArray[Any] | None, generation: int | None, sync_id: int | None
) -> None:
    plan = FilePlan("parquet", "ZSTD", (), {}, "", False, 1, generation, sync_id)

    columns = metadata_columns(raw_ids(2), Decoded(AT, [], changes), plan)

    assert [column.type for column in columns] == [arrow_type(column.type) for column in METADATA_COLUMNS]
    for column in columns:
        column.validate(full=True)
    _, extracted_at, meta, generations = columns
    assert extracted_at == AT
    noted = [[], []] if changes is None else CHANGED
    assert meta.to_pylist() == [{"sync_id": sync_id, "changes": row_changes} for row_changes in noted]
    assert generations.to_pylist() == [generation, generation]


def test_in_tables_of_s3_data_lake_times_are_milliseconds_and_nothing_is_null() -> None:
    """Their columns are required at every depth; a source may leave members of its changes out."""
    changes = pa.array([[{"field": "a"}], [{"reason": "r"}]], CHANGES_TYPE)
    plan = FilePlan("parquet", "ZSTD", (), {}, "", False, 1, 7, 8, metadata=EPOCH_METADATA_COLUMNS)

    columns = metadata_columns(raw_ids(2), Decoded(AT, [], changes), plan)

    assert [column.type for column in columns] == [arrow_type(column.type) for column in EPOCH_METADATA_COLUMNS]
    _, extracted_at, meta, _ = columns
    assert extracted_at.to_pylist() == [1_700_000_000_000, 1_700_000_000_000]
    assert meta.to_pylist() == [
        {"sync_id": 8, "changes": [{"field": "a", "change": "", "reason": ""}]},
        {"sync_id": 8, "changes": [{"field": "", "change": "", "reason": "r"}]},
    ]
