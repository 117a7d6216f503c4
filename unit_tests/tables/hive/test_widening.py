"""Wider columns: in place for JSON Lines, by copy-on-write for Parquet files, also while other syncs commit."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from destination_datalake.tables.fencing import Fenced
from destination_datalake.tables.table import Reencode
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.tables.hive.orders import (
    WIDE,
    columns,
    create_foreign_table_with_files,
    during_rewrite,
    glue_table,
    ids,
    parquet_of,
    put,
    rewrite,
    sync,
    update_glue_table,
    visible_files,
)

pytestmark = pytest.mark.share(3)


@pytest.mark.parametrize(("number", "type_"), [(2, "int"), (WIDE + 1, "bigint")])
def test_sync_that_is_taken_over_while_it_widens_leaves_the_table_to_the_other(
    cloud: Cloud, number: int, type_: str
) -> None:
    """Also if that one has ended, or widens, too."""
    widening = sync(cloud)
    widening.commit("old", 1)

    def complete_another_sync() -> None:
        other_sync = sync(cloud)
        other_sync.commit("other", number)
        other_sync.publish()

    with pytest.raises(Fenced):
        widening.commit("wide", WIDE, rewrite=during_rewrite(complete_another_sync))

    assert ids(cloud) == [1, number]
    assert ("id", type_, None) in columns(cloud)


def test_widening_of_an_empty_table_is_noticed_by_batches_that_were_encoded_before(cloud: Cloud) -> None:
    first = sync(cloud)
    planned = first.encode("first", 1)
    first.commit("second", WIDE)

    assert first.table.commit([planned], rewrite) == Reencode(
        "the types of the table's columns changed after the batch was encoded"
    )
    first.commit("first", 1)

    assert ids(cloud) == [1, WIDE]


def test_files_that_another_engine_adds_during_a_widening_are_rewritten_too(cloud: Cloud) -> None:
    widening = sync(cloud)
    widening.commit("before", 1)
    foreign_key = f"{widening.folder.removeprefix(f's3://{BUCKET}/')}/theirs.parquet"

    widening.commit("wide", WIDE, rewrite=during_rewrite(lambda: put(cloud, foreign_key, parquet_of(2))))
    widening.commit("after", 3)

    assert ids(cloud) == [1, 2, 3, WIDE]


@pytest.mark.slow
def test_widening_succeeds_although_others_keep_changing_the_glue_table(cloud: Cloud) -> None:
    """Every other update meets a column that another writer has just added."""
    access = another_client()
    syncing = sync(cloud, access=access)
    syncing.commit("narrow", 1)

    def add_a_column(times: int) -> None:
        if times % 2:
            storage = glue_table(cloud)["StorageDescriptor"]
            storage["Columns"].append({"Name": f"theirs_{times}", "Type": "map<string,int>"})
            update_glue_table(cloud, StorageDescriptor=storage)

    before(access, "glue", "UpdateTable", add_a_column)
    syncing.commit("wide", WIDE)

    assert ids(cloud) == [1, WIDE]
    assert ("theirs_1", "map<string,int>", None) in columns(cloud)


def test_file_deleted_during_a_widening_is_left_out(cloud: Cloud) -> None:
    """Its commit has failed, so it must not be copied."""
    syncing = sync(cloud)
    syncing.commit("kept", 1)
    syncing.commit("deleted", 2)
    s3, key = cloud.access.client("s3"), f"{syncing.folder.removeprefix(f's3://{BUCKET}/')}/deleted"

    syncing.commit("wide", WIDE, rewrite=during_rewrite(lambda: s3.delete_object(Bucket=BUCKET, Key=key)))

    assert ids(cloud) == [1, WIDE]


def lose_executors() -> None:
    raise RuntimeError("the executors are gone")


def test_failed_widening_fails_the_batch_and_leaves_the_table_as_it_was(cloud: Cloud) -> None:
    syncing = sync(cloud)
    syncing.commit("one", 1)

    with pytest.raises(RuntimeError):
        syncing.commit("wide", WIDE, rewrite=during_rewrite(lose_executors))

    assert ids(cloud) == [1]
    assert cloud.unfinished_uploads() == []
    syncing.commit("two", 2)
    assert ids(cloud) == [1, 2]


def test_files_of_other_writers_in_several_folders_are_all_rewritten_and_keep_their_rows(cloud: Cloud) -> None:
    create_foreign_table_with_files(cloud)

    syncing = sync(cloud)
    syncing.commit("wide", WIDE)

    assert ids(cloud) == [1, 2, 3, WIDE]
    assert visible_files(cloud) == ["a b+%20/part-0.parquet", "a/part-0.parquet", "part-0.parquet", "wide"]
    location = syncing.folder.removeprefix(f"s3://{BUCKET}/")
    rewritten = pq.read_table(io.BytesIO(cloud.objects()[f"{location}/part-0.parquet"]))
    assert rewritten.to_pylist() == [{"id": 1}]
    assert ("id", "bigint", None) in columns(cloud)
