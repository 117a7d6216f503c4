"""Transactions that share metadata: the same metadata as PyIceberg's, and none of it changed in place."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.update import update_table_metadata
from pyiceberg.types import LongType, NestedField, StringType

from destination_datalake.tables.iceberg.metadata.transaction import SharingTransaction, updated
from unit_tests.tables.iceberg.lake import Lake

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

    ours = updated(base, transaction._updates, "s3://lake/before.metadata.json")

    theirs = update_table_metadata(base, transaction._updates, metadata_location="s3://lake/before.metadata.json")
    assert ours == theirs
    assert ours.last_updated_ms == ours.snapshots[-1].timestamp_ms
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
