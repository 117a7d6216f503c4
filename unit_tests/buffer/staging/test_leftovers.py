"""What killed syncs have left in S3 is deleted by later ones; what is alive, or not ours, never is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.buffer.staging.lease import LEASE_NAME, LEASE_SECONDS, content_of
from destination_datalake.buffer.staging.leftovers import remove_leftovers
from unit_tests.buffer.staging.account import OTHER, ROOT, SYNC, age
from unit_tests.cloud import BUCKET, Cloud, another_client, before

DEAD = timedelta(seconds=LEASE_SECONDS + 5)
ALIVE = timedelta(seconds=LEASE_SECONDS - 60)
INDEX = f"lake/_staging/{SYNC}/scratch/{'0' * 32}/index-00001-0123abcd.arrow"
LEASE = f"lake/_staging/{SYNC}/{LEASE_NAME}"


def put(access: AwsAccess, key: str, content: bytes = b"", by: timedelta = DEAD) -> str:
    access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content)
    age(key, by)
    return key


def leave(cloud: Cloud, sync: str = SYNC, segments: int = 2, by: timedelta = DEAD) -> list[str]:
    """Leave what a sync leaves that is killed; return the keys."""
    folder = f"lake/_staging/{sync}"
    keys = [put(cloud.access, f"{folder}/{number:08d}.jsonl", b"{}\n", by) for number in range(segments)]
    return [*keys, put(cloud.access, f"{folder}/{LEASE_NAME}", content_of(sync), by)]


def test_what_a_dead_sync_has_left_is_deleted(cloud: Cloud) -> None:
    leave(cloud, segments=3)
    leave(cloud, sync="a" * 12, segments=0)
    put(cloud.access, INDEX)

    remove_leftovers(ROOT, OTHER, cloud.access)

    assert cloud.objects() == {}


def test_more_objects_than_one_listing_has_are_deleted(cloud: Cloud) -> None:
    leave(cloud, segments=7)
    access = another_client()
    events: Any = access.client("s3").meta.events
    events.register("provide-client-params.s3.ListObjectsV2", lambda params, **_: {**params, "MaxKeys": 2})

    remove_leftovers(ROOT, OTHER, access)

    assert cloud.objects() == {}


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda cloud: leave(cloud, by=ALIVE), id="its lease was renewed within the hour"),
        pytest.param(lambda cloud: leave(cloud, sync=OTHER), id="it is the sync that looks"),
        pytest.param(lambda cloud: leave(cloud)[:0] or put(cloud.access, _segment(9), by=ALIVE), id="it has uploaded"),
        pytest.param(lambda cloud: leave(cloud)[:0] or put(cloud.access, INDEX, by=ALIVE), id="it merges"),
        pytest.param(lambda cloud: put(cloud.access, _segment(1)), id="it has no lease"),
        pytest.param(
            lambda cloud: [put(cloud.access, _segment(1)), put(cloud.access, LEASE, b"{}")], id="the lease is not ours"
        ),
        pytest.param(
            lambda cloud: [put(cloud.access, _segment(1)), put(cloud.access, LEASE, content_of(OTHER))],
            id="the lease is another sync's",
        ),
        pytest.param(lambda cloud: leave(cloud, sync="packages-3.11"), id="the folder is not a sync's"),
        pytest.param(lambda cloud: put(cloud.access, "lake/_staging/archive.tar.gz"), id="an object of another kind"),
    ],
)
def test_what_is_alive_or_not_known_to_be_ours_stays(cloud: Cloud, prepare: Callable[[Cloud], object]) -> None:
    prepare(cloud)
    there = cloud.objects()

    remove_leftovers(ROOT, OTHER, cloud.access)

    assert cloud.objects() == there


def _segment(number: int) -> str:
    return f"lake/_staging/{SYNC}/{number:08d}.jsonl"


def test_objects_of_others_in_a_dead_sync_s_folder_stay(cloud: Cloud) -> None:
    leave(cloud)
    theirs = put(cloud.access, f"lake/_staging/{SYNC}/notes.txt")

    remove_leftovers(ROOT, OTHER, cloud.access)

    assert [*cloud.objects()] == [theirs]


def test_a_sync_that_wakes_before_its_lease_is_read_again_keeps_everything(cloud: Cloud) -> None:
    leave(cloud)
    there = cloud.objects()
    access = another_client()
    renew = lambda _time: put(cloud.access, LEASE, content_of(SYNC), by=timedelta())  # noqa: E731
    before(access, "s3", "GetObject", renew)

    remove_leftovers(ROOT, OTHER, access)

    assert cloud.objects() == there


@pytest.mark.parametrize("deleted", range(3))
def test_a_removal_that_is_killed_is_continued_by_the_next(cloud: Cloud, deleted: int) -> None:
    leave(cloud, segments=2)
    access = another_client()

    def kill(time: int) -> None:
        if time > deleted:
            raise KeyboardInterrupt

    before(access, "s3", "DeleteObject", kill)
    with pytest.raises(KeyboardInterrupt):
        remove_leftovers(ROOT, OTHER, access)
    assert len(cloud.objects()) == 3 - deleted

    remove_leftovers(ROOT, OTHER, cloud.access)

    assert cloud.objects() == {}


def test_a_store_that_does_not_say_the_time_has_nothing_that_is_known_to_be_old(cloud: Cloud) -> None:
    leave(cloud)
    there = cloud.objects()
    access = another_client()
    access.client("s3").meta.events.register(
        "after-call.s3.ListObjectsV2", lambda parsed, **_: parsed["ResponseMetadata"]["HTTPHeaders"].pop("date")
    )

    remove_leftovers(ROOT, OTHER, access)

    assert cloud.objects() == there
