"""Transactions that share metadata: the same metadata as PyIceberg's, and none of it changed in place."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.update import update_table_metadata
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.types import LongType, NestedField, StringType

from destination_datalake.tables.iceberg.commit import SharingTransaction, updated
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

SCHEMA = Schema(NestedField(1, "id", LongType()))


def change_everything(transaction: Transaction) -> None:
    with transaction.update_schema() as schema:
        schema.add_column("name", StringType())
    with transaction.update_spec() as spec:
        spec.add_identity("id")
    transaction.set_properties({"ours": "1"})
    transaction.remove_properties("theirs")
    with transaction.update_snapshot().fast_append():
        pass


@pytest.fixture
def transaction(lake: Lake) -> SharingTransaction:
    return SharingTransaction(lake.create(SCHEMA, partition_spec=PartitionSpec(), properties={"theirs": "1"}))


def test_updates_have_the_effect_that_they_have_in_pyiceberg(transaction: SharingTransaction) -> None:
    base = transaction._table.metadata
    change_everything(transaction)

    actual = updated(base, transaction._updates, "s3://lake/before.metadata.json")

    expected = update_table_metadata(base, transaction._updates, metadata_location="s3://lake/before.metadata.json")
    assert actual == expected
    assert actual.last_updated_ms == actual.snapshots[-1].timestamp_ms
    assert transaction.table_metadata == update_table_metadata(base, transaction._updates)


def test_a_change_without_a_snapshot_has_a_time_of_its_own(transaction: SharingTransaction) -> None:
    base = transaction._table.metadata
    base = base.model_copy(update={"last_updated_ms": base.last_updated_ms - 1000})
    transaction.set_properties({"ours": "1"})

    assert updated(base, transaction._updates).last_updated_ms > base.last_updated_ms
    assert updated(base, ()) is base


def test_the_table_s_metadata_stays_as_it_was_until_the_commit(transaction: SharingTransaction) -> None:
    base = transaction._table.metadata
    before = base.model_dump_json()

    change_everything(transaction)

    assert base.model_dump_json() == before
    assert transaction.table_metadata.schema().find_field("name").field_type == StringType()


def test_branches_keep_their_retention_when_they_move(lake: Lake) -> None:
    opened = lake.open()
    lake.commit(opened, 1)
    head = lake.load().metadata.refs["main"].snapshot_id
    lake.load().manage_snapshots().create_branch(head, "main", min_snapshots_to_keep=7).commit()

    lake.commit(opened, 2)
    overwriting = lake.open(2, overwrite=True)
    lake.commit(overwriting, 3)
    overwriting.publish(no_rewrite)

    main = lake.load().metadata.refs["main"]
    assert (main.snapshot_id == head, main.min_snapshots_to_keep) == (False, 7)
    assert lake.ids() == [3]


def test_a_branch_that_is_created_again_has_the_retention_that_is_given(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    table = lake.load()
    head = table.metadata.refs["main"].snapshot_id
    transaction = SharingTransaction(table)

    with ManageSnapshots(transaction) as snapshots:
        snapshots.create_branch(head, "b", max_ref_age_ms=5)
    with ManageSnapshots(transaction) as snapshots:
        snapshots.remove_branch("b")
    with ManageSnapshots(transaction) as snapshots:
        snapshots.create_branch(head, "b")

    assert transaction.table_metadata.refs["b"].max_ref_age_ms is None
