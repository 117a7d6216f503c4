"""Replacement of a table's content by that of its clone, which a replay has filled."""

from __future__ import annotations

import pytest

from destination_datalake.tables.iceberg.rebuild import IcebergRebuild
from destination_datalake.tables.table import TableBusy, TableName
from unit_tests.cloud import ungoverned
from unit_tests.tables.iceberg.lake import Lake

pytestmark = pytest.mark.share(4)


@pytest.fixture
def rebuilt(lake: Lake) -> TableName:
    """The clone of the table, with the same row in a file of its own."""
    lake.commit(lake.open(), 1)
    clone = TableName(lake.name.database, "orders__rebuild")
    rebuild(lake).clone(clone, {})
    rows = lake.load().scan().to_arrow()
    ungoverned(lake.access).pyiceberg().load_table(clone).append(rows)
    return clone


def rebuild(lake: Lake) -> IcebergRebuild:
    return IcebergRebuild(lake.name, ungoverned(lake.access), f"s3://{lake.bucket}/_staging/rebuild")


def test_a_table_takes_over_the_files_of_its_clone(lake: Lake, rebuilt: TableName) -> None:
    state, of_clone = rebuild(lake).state(lake.name), rebuild(lake).state(rebuilt)
    assert state is not None
    assert of_clone is not None

    assert rebuild(lake).take_over(rebuilt, state)

    after = rebuild(lake).state(lake.name)
    assert after is not None
    assert [source.uri for source in after.sources] == [source.uri for source in of_clone.sources]
    assert lake.ids() == [1]
    assert rebuild(lake).state(rebuilt) is None


def test_a_clone_whose_files_maintenance_has_removed_is_not_taken_over(lake: Lake, rebuilt: TableName) -> None:
    state, of_clone = rebuild(lake).state(lake.name), rebuild(lake).state(rebuilt)
    assert state is not None
    assert of_clone is not None
    (file,) = of_clone.sources
    key = file.uri.removeprefix(f"s3://{lake.bucket}/")
    lake.access.client("s3").delete_object(Bucket=lake.bucket, Key=key)

    with pytest.raises(TableBusy, match="1 of the 1 files that the replay has written no longer exist") as caught:
        rebuild(lake).take_over(rebuilt, state)

    assert file.uri in str(caught.value)
    assert rebuild(lake).state(lake.name) == state
    assert lake.ids() == [1]
