"""Adoption of a pending overwrite by syncs that append: its acknowledged rows are in the table once."""

from __future__ import annotations

from itertools import count

import pytest

from destination_datalake.tables.fencing import Fenced
from unit_tests.cloud import BUCKET, Cloud, another_client, before, during
from unit_tests.tables.hive.orders import WIDE, ids, set_id_type, sync

pytestmark = pytest.mark.share(2)


def test_sync_that_lost_the_token_leaves_the_adoption_to_the_other(cloud: Cloud) -> None:
    sync(cloud, generation=2, overwrite=True).commit("acknowledged", 1)
    first, second = sync(cloud, generation=2), sync(cloud, generation=2)

    with pytest.raises(Fenced):
        first.commit("first", 2)
    second.commit("second", 3)
    second.publish()

    assert ids(cloud) == [1, 3]


def test_rows_are_adopted_once_although_another_sync_adopts_and_moves_them_meanwhile(cloud: Cloud) -> None:
    sync(cloud, generation=1).commit("old", 1)
    sync(cloud, generation=2, overwrite=True).commit("acknowledged", 2)
    access = another_client()
    adopting = sync(cloud, generation=2, access=access)
    before(
        access, "glue", "UpdateTable", lambda times: times == 1 and sync(cloud, generation=2).commit("wide", WIDE) == 1
    )

    with pytest.raises(Fenced):
        adopting.commit("appended", 3)

    assert ids(cloud) == [1, 2, WIDE]


def test_narrow_rows_are_adopted_into_a_table_that_another_engine_made_wider(cloud: Cloud) -> None:
    sync(cloud, generation=1)
    sync(cloud, generation=2, overwrite=True).commit("acknowledged", 2)
    set_id_type(cloud, "bigint")

    sync(cloud, generation=2).publish()

    assert ids(cloud) == [2]


def test_file_deleted_by_the_fenced_sync_during_adoption_is_left_out(cloud: Cloud) -> None:
    overwriting = sync(cloud, generation=2, overwrite=True)
    for number, name in enumerate(["acknowledged", "deleted"]):
        overwriting.commit(name, number)
    s3, key = cloud.access.client("s3"), f"{overwriting.folder.removeprefix(f's3://{BUCKET}/')}/deleted"
    access = another_client()
    adopting = sync(cloud, generation=2, access=access)
    copied = count(1)

    def delete_once_all_are_copied(**_: object) -> None:
        if next(copied) == 2:
            s3.delete_object(Bucket=BUCKET, Key=key)

    with during(access, "after-call.s3.CopyObject", delete_once_all_are_copied):
        adopting.commit("appended", 2)

    assert ids(cloud) == [0, 2]


def test_rows_stay_if_another_sync_has_adopted_them_and_deleted_their_folder(cloud: Cloud) -> None:
    """A concurrent adoption finds the folder empty, which does not mean that its files failed to be committed."""
    sync(cloud, generation=2, overwrite=True).commit("acknowledged", 1)
    access = another_client()
    slow = sync(cloud, generation=2, access=access)

    def adopt_and_delete_folder(times: int) -> None:
        if times == 1:
            fast = sync(cloud, generation=2)
            fast.commit("fast", 2)
            fast.publish()

    before(access, "s3", "CopyObject", adopt_and_delete_folder)
    with pytest.raises(Fenced):
        slow.commit("slow", 3)

    assert ids(cloud) == [1, 2]
