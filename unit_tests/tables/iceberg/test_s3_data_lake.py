"""Tables of S3 Data Lake: what a sync writes to them, and what it does with rows that are staged or deleted."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import IcebergType, ListType, LongType, NestedField, StringType, StructType

from destination_datalake.schema.types import Field, Int64
from destination_datalake.tables.iceberg.compatibility import is_of_s3_data_lake, staging_branch_ahead
from destination_datalake.tables.s3_data_lake import EPOCH_METADATA_COLUMNS
from destination_datalake.tables.table import TableConflict
from unit_tests.tables.iceberg.lake import COLUMNS, Lake, no_rewrite

pytestmark = pytest.mark.share(3)

CHANGE = StructType(
    *(NestedField(id_, name, StringType()) for id_, name in ((8, "field"), (9, "change"), (10, "reason")))
)
META = StructType(NestedField(6, "sync_id", LongType()), NestedField(7, "changes", ListType(11, CHANGE)))


def create(lake: Lake) -> None:
    types: list[tuple[str, IcebergType]] = [
        ("id", LongType()),
        ("_airbyte_raw_id", StringType()),
        ("_airbyte_extracted_at", LongType()),
        ("_airbyte_meta", META),
        ("_airbyte_generation_id", LongType()),
    ]
    lake.create(Schema(*(NestedField(id_, name, type_) for id_, (name, type_) in enumerate(types, 1))))
    lake.append(1)


def stage(lake: Lake, *ids: int, branch: str = "airbyte_staging") -> None:
    """Commit rows to a branch as a sync does that fails afterwards."""
    head = lake.load().metadata.refs[MAIN_BRANCH].snapshot_id
    if branch not in lake.load().metadata.refs:
        lake.load().manage_snapshots().create_branch(head, branch).commit()
    lake.append(*ids)
    staged = lake.load().metadata.refs[MAIN_BRANCH].snapshot_id
    lake.load().manage_snapshots().create_branch(staged, branch).create_branch(head, MAIN_BRANCH).commit()


def test_times_of_extraction_are_written_as_its_integers(lake: Lake) -> None:
    create(lake)

    opened = lake.open()

    assert is_of_s3_data_lake(lake.load().metadata)
    assert opened.plan().metadata == EPOCH_METADATA_COLUMNS


@pytest.mark.parametrize("key", [(), ("id",)])
def test_staged_rows_become_content_before_new_rows(lake: Lake, key: tuple[str, ...]) -> None:
    """Whether rows are deduplicated or not. The branch stays where it is."""
    create(lake)
    stage(lake, 2)

    opened = lake.open(key=key)
    published = lake.ids()
    lake.commit(opened, 3, _airbyte_raw_id="a", _airbyte_extracted_at=5)
    opened.publish(no_rewrite)

    assert published == [1, 2]
    assert lake.ids() == [1, 2, 3]
    assert lake.branches() == ["airbyte_staging"]
    assert staging_branch_ahead(lake.load().metadata) is None


def test_a_later_row_replaces_one_of_its_own(lake: Lake) -> None:
    create(lake)
    first = lake.open()
    lake.commit_rows(first, {"id": 2, "_airbyte_raw_id": "z", "_airbyte_extracted_at": 4})

    opened = lake.open(key=("id",))
    lake.commit_rows(opened, {"id": 2, "_airbyte_raw_id": "a", "_airbyte_extracted_at": 5})
    opened.publish(no_rewrite)

    rows = lake.load().scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["_airbyte_extracted_at"]) for row in rows) == [(1, None), (2, 5)]


def test_a_refresh_leaves_staged_rows_alone(lake: Lake) -> None:
    create(lake)
    stage(lake, 2)

    new = lake.open(2, overwrite=True)
    lake.commit(new, 3)
    before = lake.ids()
    new.publish(no_rewrite)

    assert (before, lake.ids()) == ([1], [3])


@pytest.mark.parametrize("refuses", [True, False])
def test_deduplication_of_rows_with_equality_deletes_is_refused_before_the_first_record(
    lake: Lake, *, refuses: bool
) -> None:
    """Deletes that no data file is older than are no reason."""
    create(lake)
    if not refuses:
        lake.load().delete("id = 1")
    lake.delete_by_equality()
    before = lake.load().metadata
    how: dict[str, Any] = {"key": ("id",), "columns": (*COLUMNS, Field("n", "n", Int64()))}

    if refuses:
        with pytest.raises(TableConflict, match=r"CALL system\.rewrite_data_files\(table => ") as refused:
            lake.open(**how)
        assert "delete-file-threshold" in str(refused.value)
        assert lake.load().metadata == before
    else:
        lake.open(**how)


def test_a_table_that_this_connector_created_has_no_staging_branch_of_another(lake: Lake) -> None:
    """A branch that a user has named so is the user's."""
    lake.commit(lake.open(), 1)
    stage(lake, 2)

    lake.commit(lake.open(), 3)

    assert lake.ids() == [1, 3]
